package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// lostLock returns a refusal if the agent has used a lock file before, but the lock file is now missing or older than
// the lock file that was used last. Without this check, an attacker could disable the lock file by deleting it. A
// lock file that was never used is treated as new. A new lock file is recorded only after the agent has started with
// it. Until then, the operator can go back to the last working lock file. A lock file is refused if a server could have
// created it.
func (a *Agent) lostLock(folder string, lock *pack.Lock) *call.Refusal {
	if a.noStore != nil {
		return nil // without a store, every call is refused
	}
	who := a.manifest.Agent()
	path := filepath.Join(folder, filepath.Base(a.manifest.Path))
	digest, err := lockDigest(who, lock)
	var seen, newest string
	if err == nil {
		seen, newest, err = lockSeen(a.ctx, a.options.Store, path, digest)
	}
	switch {
	case errors.Is(err, errLockRows):
		return drifted(err.Error(), "find out who can write to the store, check ambit.lock, and accept it with: ambit lock "+
			a.manifest.Path)
	case err != nil:
		return call.Refuse("act", call.StoreUnavailable,
			"cannot look up the last used ambit.lock in the store: %v", err)
	case digest == "" && (newest == "" || newest == noLock), newest == digest:
		return nil
	case newest == noLock:
		return drifted("an ambit.lock appeared where a server of the agent can write",
			"check that you made ambit.lock, and accept it with: ambit lock "+a.manifest.Path)
	case digest == "":
		return drifted("the agent's ambit.lock is missing",
			"restore ambit.lock, or create a new one with: ambit lock "+a.manifest.Path)
	case seen != "":
		return drifted("the agent's ambit.lock is older than the ambit.lock that was used last",
			"restore the newer ambit.lock, or accept this one with: ambit lock "+a.manifest.Path)
	}
	a.newLock.path, a.newLock.digest = path, digest
	return nil
}

// noLock is recorded instead of a digest if an agent runs without a lock file and a server can create one.
const noLock = "none"

// watchLock checks whether a server with this access can create a lock file. If so, it records that there is no lock
// file.
func (a *Agent) watchLock(access agent.Access) error {
	path, err := filepath.Abs(a.manifest.Path)
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	if _, err := os.Lstat(filepath.Join(folder, pack.LockName)); !errors.Is(err, os.ErrNotExist) {
		return err // an existing lock file is read-only for servers
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return err
	}
	if !access.Allows(agent.Right{Kind: agent.CanWrite, What: folder}) {
		return nil
	}
	return rememberLock(a.ctx, a.options.Store, path, noLock, false)
}

// rememberLock records the lock file if lostLock treated it as new.
func (a *Agent) rememberLock() *call.Refusal {
	a.newLock.mu.Lock()
	defer a.newLock.mu.Unlock()
	if a.newLock.digest == "" {
		return nil
	}
	if err := rememberLock(a.ctx, a.options.Store, a.newLock.path, a.newLock.digest, false); err != nil {
		return call.Refuse("act", call.StoreUnavailable, "ambit cannot record which ambit.lock is used: %v", err)
	}
	a.newLock.digest = ""
	return nil
}

// verifiedKey returns a key in the store. Under this key, ambit records the lock files with which all servers of an
// agent have been verified. The key differs from the path of every manifest, because paths contain no double slash.
func (a *Agent) verifiedKey(folder string) string {
	return filepath.Join(folder, filepath.Base(a.manifest.Path)) + "//verified"
}

// lockVerified reports whether all servers of the agent have been verified with this lock file before, on this
// machine. Only then do the definitions in the lock file come from the servers. Anyone who can write the lock file can
// write other definitions with the right hashes.
func (a *Agent) lockVerified(folder string, lock *pack.Lock) bool {
	digest := a.usableLock(lock)
	if digest == "" {
		return false
	}
	seen, _, err := lockSeen(a.ctx, a.options.Store, a.verifiedKey(folder), digest)
	return err == nil && seen != ""
}

// usableLock returns the digest of the agent's entry in the lock file, or "" if the store cannot contain it.
func (a *Agent) usableLock(lock *pack.Lock) string {
	if a.noStore != nil {
		return ""
	}
	digest, _ := lockDigest(a.manifest.Agent(), lock) // lostLock has reported an error before
	return digest
}

// rememberVerified records that all servers of the agent have been verified with this lock file.
func (a *Agent) rememberVerified(folder string, lock *pack.Lock) {
	digest := a.usableLock(lock)
	if digest == "" {
		return
	}
	if err := rememberLock(a.ctx, a.options.Store, a.verifiedKey(folder), digest, false); err != nil {
		a.options.Log("", fmt.Sprintf("warning: ambit cannot record that the servers match ambit.lock, so it starts all "+
			"servers each time the agent starts: %v", err))
	}
}

func drifted(what, fix string) *call.Refusal {
	r := call.Refuse("act", call.ServerDrifted, "%s", what)
	r.Hint = fix
	return r
}

// RememberLock records the lock file that an agent used last. The agent is identified by the path of its manifest.
func RememberLock(ctx context.Context, b *store.Store, path string, who *agent.Agent, lock *pack.Lock) error {
	digest, err := lockDigest(who, lock)
	if err != nil || digest == "" {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	return rememberLock(ctx, b, path, digest, true)
}

// rememberLock records that a lock file was used last. The new record is later than all earlier ones, even if the clock
// was set back. If something other than ambit changed the rows, rememberLock returns errLockRows. But if a person has
// just accepted the lock file, rememberLock replaces the changed rows.
func rememberLock(ctx context.Context, b *store.Store, path, digest string, accepted bool) error {
	return b.DB.Write(ctx, func(tx state.Tx) error {
		v, err := b.Authority.View(tx)
		if err != nil {
			return err
		}
		digests, last, err := lockRows(tx, path)
		switch {
		case err != nil:
			return err
		case changedLocks(v, path, digests) && !accepted:
			return errLockRows
		case changedLocks(v, path, digests):
			if _, err := tx.Exec(`DELETE FROM locks_seen WHERE agent = $1`, path); err != nil {
				return err
			}
			digests, last = nil, 0
		}
		_, err = tx.Exec(`INSERT INTO locks_seen (agent, digest, seen) VALUES ($1, $2, $3)
ON CONFLICT (agent, digest) DO UPDATE SET seen = excluded.seen`, path, digest, max(time.Now().UnixMicro(), last+1))
		if err != nil {
			return err
		}
		digests = append(slices.DeleteFunc(digests, func(d string) bool { return d == digest }), digest)
		return b.Authority.Put(tx, lockRow(path, digests))
	})
}

// errLockRows means that the register of authority does not match the rows of an agent in the table locks_seen.
var errLockRows = errors.New("something other than ambit changed the record of the ambit.lock that the agent used last")

// lockSeen looks up the lock files that an agent has used. The agent is identified by the path of its manifest. If the
// agent has used the lock file with the given digest, the result seen is this digest. Otherwise, seen is empty. The
// result newest is the digest of the lock file that the agent used last.
func lockSeen(ctx context.Context, b *store.Store, path, digest string) (seen, newest string, err error) {
	err = b.Authority.Read(ctx, func(tx state.Tx, v *authority.View) error {
		seen, newest = "", ""
		digests, _, err := lockRows(tx, path)
		switch {
		case err != nil:
			return err
		case changedLocks(v, path, digests):
			return errLockRows
		}
		if len(digests) > 0 {
			newest = digests[len(digests)-1]
		}
		if slices.Contains(digests, digest) {
			seen = digest
		}
		return nil
	})
	return seen, newest, err
}

// lockRows returns the digests of the lock files that an agent has used, oldest first, and when it used the last one.
func lockRows(tx state.Tx, path string) (digests []string, last int64, err error) {
	const query = `SELECT digest, seen FROM locks_seen WHERE agent = $1 ORDER BY seen, digest`
	err = tx.Query(query, []any{path}, func(row state.Row) error {
		var digest string
		err := row.Scan(&digest, &last)
		digests = append(digests, digest)
		return err
	})
	return digests, last, err
}

// changedLocks reports whether something other than ambit changed the rows of an agent. It returns false if the
// register has no entry for the agent. Earlier versions of ambit made no such entries.
func changedLocks(v *authority.View, path string, digests []string) bool {
	row := lockRow(path, digests)
	return v.Knows(row.Kind, row.ID) && !v.Has(row)
}

// LockClaims returns the entries of all rows in the table locks_seen, whether or not the register contains them.
func LockClaims(tx state.Tx) (rows []authority.Row, err error) {
	const query = `SELECT agent, digest FROM locks_seen ORDER BY agent, seen, digest`
	var path string
	var digests []string
	flush := func() {
		if len(digests) > 0 {
			rows = append(rows, lockRow(path, digests))
		}
	}
	err = tx.Query(query, nil, func(row state.Row) error {
		var next, digest string
		err := row.Scan(&next, &digest)
		if next != path {
			flush()
			path, digests = next, nil
		}
		digests = append(digests, digest)
		return err
	})
	flush()
	return rows, err
}

// lockRow returns the entry of an agent's lock files in the register.
func lockRow(path string, digests []string) authority.Row {
	return authority.Row{
		Kind: authority.Lock, ID: path, Content: []byte(authority.ID(digests...)),
		Gives: "the record of which ambit.lock was used last",
	}
}

// lockDigest returns the digest of the agent's entry in the lock file. The digest is empty if there is no entry.
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
