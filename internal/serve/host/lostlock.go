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

// lostLock refuses an agent whose lock is missing although it was seen before, or is older than the
// last one: otherwise deleting the lock would disable it. A lock that was never seen is newer. It
// is remembered once the agent works, so that the last working lock can be restored.
func (a *Agent) lostLock(folder string, lock *pack.Lock) *call.Refusal {
	if a.noStore != nil {
		return nil // no call can be made anyway
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
		return call.Refuse("act", call.StoreUnavailable, "the last lock cannot be read from the store: %v", err)
	case newest == "" && digest == "", newest == digest:
		return nil
	case digest == "":
		return drifted("its ambit.lock is missing", "restore ambit.lock, or create a new one: ambit lock "+a.manifest.Path)
	case seen != "":
		return drifted("its ambit.lock is older than the last one used",
			"restore the newer ambit.lock, or accept this one: ambit lock "+a.manifest.Path)
	}
	a.newLock.path, a.newLock.digest = path, digest
	return nil
}

// rememberLock records a lock that was not seen before.
func (a *Agent) rememberLock() *call.Refusal {
	a.newLock.mu.Lock()
	defer a.newLock.mu.Unlock()
	if a.newLock.digest == "" {
		return nil
	}
	if err := rememberLock(a.ctx, a.options.Books, a.newLock.path, a.newLock.digest); err != nil {
		return call.Refuse("act", call.StoreUnavailable, "the lock cannot be recorded: %v", err)
	}
	a.newLock.digest = ""
	return nil
}

func drifted(what, fix string) *call.Refusal {
	r := call.Refuse("act", call.ServerDrifted, "%s", what)
	r.Hint = fix
	return r
}

// RememberLock records a lock as the newest of the agent at path.
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

// lockSeen returns digest if it was seen before, and the newest digest.
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

// lockDigest is the digest of a lock's entry for an agent; empty if it has none.
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
