package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// lostLock refuses an agent whose lock has gone since it was last seen, or is
// one that another has replaced: whoever can take the lock away could otherwise
// undo it. One that was never seen is newer, and is remembered once the agent works:
// otherwise the last that did could not be put back.
func (a *Agent) lostLock(folder string, lock *pack.Lock) *call.Refusal {
	if a.shut != nil {
		return nil // nothing can be called anyway
	}
	who := a.manifest.Agent()
	path := filepath.Join(folder, filepath.Base(a.manifest.Path))
	digest, err := lockDigest(who, lock)
	var seen, newest string
	if err == nil {
		seen, newest, err = lockSeen(a.ctx, a.options.Books, path, digest)
	}
	switch {
	case err != nil:
		return call.Refuse("act", call.StoreUnavailable, "what was locked before cannot be read: %v", err)
	case newest == "" && digest == "", newest == digest:
		return nil
	case digest == "":
		return drifted("its lock has gone", "restore ambit.lock, or lock it anew: ambit lock "+a.manifest.Path)
	case seen != "":
		return drifted("its lock is older than the one that was used last", "restore the newer ambit.lock, or say that this one holds: ambit lock "+a.manifest.Path)
	}
	a.newLock.path, a.newLock.digest = path, digest
	return nil
}

// rememberLock has the lock that was not seen before count as seen.
func (a *Agent) rememberLock() *call.Refusal {
	a.newLock.mu.Lock()
	defer a.newLock.mu.Unlock()
	if a.newLock.digest == "" {
		return nil
	}
	if err := rememberLock(a.ctx, a.options.Books, a.newLock.path, a.newLock.digest); err != nil {
		return call.Refuse("act", call.StoreUnavailable, "the lock cannot be remembered: %v", err)
	}
	a.newLock.digest = ""
	return nil
}

func drifted(what, fix string) *call.Refusal {
	r := call.Refuse("act", call.ServerDrifted, "%s", what)
	r.Hint = fix
	return r
}

// RememberLock makes a lock the newest one that was seen of the agent at path.
func RememberLock(ctx context.Context, b *store.Store, path string, who *agent.Agent, lock *pack.Lock) error {
	digest, err := lockDigest(who, lock)
	if err != nil || digest == "" {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	return rememberLock(ctx, b, path, digest)
}

func rememberLock(ctx context.Context, b *store.Store, path, digest string) error {
	return b.DB.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`INSERT INTO locks_seen (agent, digest, seen) VALUES ($1, $2, $3)
ON CONFLICT (agent, digest) DO UPDATE SET seen = excluded.seen`, path, digest, time.Now().UnixMicro())
		return err
	})
}

// lockSeen is the digest itself if it was seen before, and the newest one.
func lockSeen(ctx context.Context, b *store.Store, path, digest string) (seen, newest string, err error) {
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		seen, newest = "", ""
		return tx.Query(`SELECT digest FROM locks_seen WHERE agent = $1 ORDER BY seen`, []any{path}, func(row state.Row) error {
			err := row.Scan(&newest)
			if newest == digest {
				seen = newest
			}
			return err
		})
	})
	return seen, newest, err
}

// lockDigest stands for what a lock says of one agent; empty if it says nothing.
func lockDigest(who *agent.Agent, lock *pack.Lock) (string, error) {
	if lock == nil || lock.Agents[who.ID] == nil {
		return "", nil
	}
	text, err := json.Marshal(lock.Agents[who.ID])
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
