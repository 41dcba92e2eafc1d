package signin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// storage keeps sign-ins. The vault of a home keeps those of its owner. The store of a daemon keeps those of the
// daemon's callers, so that all replicas use the same ones.
type storage interface {
	get(t *Target) (s credential.Secret, found bool, err error)
	// set stores a sign-in. If the claim is not "", set fails if another process has taken over the lock in the meantime.
	set(t *Target, s credential.Secret, claim string) error
	remove(t *Target) error
	// list returns the sign-ins of a principal, or of all principals if the parameter is "".
	list(principal string) ([]entry, error)
	// lock waits until no other process changes the sign-in, and then prevents other processes from changing it. Two
	// processes must not use the same refresh token, because it can often be used only once. The caller passes the claim
	// to set.
	lock(ctx context.Context, t *Target) (claim string, unlock func(), err error)
}

// entry is a sign-in together with the names under which it is stored.
type entry struct {
	agent, server, principal string
	secret                   credential.Secret
}

// storageOf returns the storage for the sign-ins of a principal.
func (k *Keeper) storageOf(principal string) storage {
	if k.shared != nil && principal != identity.LocalName() {
		return k.shared
	}
	return vaultStorage{k.vault, k.home}
}

// errBusy means that the lock of a sign-in was not released in time.
var errBusy = errors.New("another process is still renewing a sign-in, or was suspended while doing so")

// errOvertaken means that changing a sign-in took so long that another process took over the lock.
var errOvertaken = errors.New("another process has changed the sign-in in the meantime")

// vaultStorage keeps sign-ins in a vault.
type vaultStorage struct {
	credential.Vault
	home home.Home
}

func (v vaultStorage) get(t *Target) (credential.Secret, bool, error) { return v.Get(t.Agent, t.ref()) }

func (v vaultStorage) set(t *Target, s credential.Secret, _ string) error {
	// The claim is not needed: no other process can take over the vault's lock while this process runs.
	return v.Set(t.Agent, t.ref(), s)
}

func (v vaultStorage) remove(t *Target) error {
	_, err := v.Remove(t.Agent, t.ref())
	return err
}

func (v vaultStorage) list(of string) (all []entry, err error) {
	entries, err := v.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Ref, prefix)
		server, principal, _ := strings.Cut(rest, ":")
		if !ok || of != "" && of != principal {
			continue
		}
		s, found, err := v.Get(e.Agent, e.Ref)
		if err != nil {
			return nil, err
		}
		if found { // another process may have removed the secret
			all = append(all, entry{e.Agent, server, principal, s})
		}
	}
	return all, nil
}

func (v vaultStorage) lock(ctx context.Context, _ *Target) (claim string, unlock func(), err error) {
	if err := os.MkdirAll(v.home.Dir(), 0o700); err != nil {
		return "", nil, err
	}
	unlock, err = home.Hold(ctx, filepath.Join(v.home.Dir(), "signins.lock"))
	if err != nil && ctx.Err() != nil {
		return "", nil, errBusy
	}
	return "", unlock, err
}

// sharedStorage keeps sign-ins in a store. Each row is encrypted together with the names under which it is stored. A
// row that is copied to another agent, server or principal therefore cannot be decrypted.
type sharedStorage struct {
	db   state.DB
	keys *identity.Keys
	now  func() time.Time
}

const (
	// storeTime is the time limit for one access to the store.
	storeTime = 10 * time.Second
	// claimTime is how long a claim is valid. Other processes wait that long for a process that changes a sign-in.
	// claimTime exceeds the time limit of a token request.
	claimTime = 2 * answerTime
	// claimPatience is how much longer the other processes wait while the claim's process is alive.
	claimPatience = 10 * time.Minute
)

// purpose returns the text that binds an encrypted row to its kind and names.
func purpose(kind string, names ...string) string {
	text, _ := json.Marshal(names) // strings can always be encoded
	return "signin/" + kind + "/" + string(text)
}

// sealedSecret is the content of a row.
type sealedSecret struct {
	ID    string   `json:"id"`
	Hosts []string `json:"hosts"`
	Value string   `json:"value"`
}

func (s *sharedStorage) open(agent, server, principal string, sealed []byte) (credential.Secret, error) {
	var c sealedSecret
	plain, err := s.keys.OpenKept(purpose("token", agent, server, principal), sealed)
	if err != nil || json.Unmarshal(plain, &c) != nil {
		return credential.Secret{}, errors.New("the stored sign-in is damaged or was copied from another owner")
	}
	secret, err := credential.New(credential.JSON, c.Value, c.Hosts)
	return secret.Of(c.ID), err
}

func (s *sharedStorage) get(t *Target) (secret credential.Secret, found bool, err error) {
	var sealed []byte
	err = s.read(`SELECT sealed FROM signins WHERE agent = $1 AND server = $2 AND principal = $3`,
		[]any{t.Agent, t.Server, t.Principal}, func() { sealed = nil },
		func(r state.Row) error { return r.Scan(&sealed) })
	if err != nil || sealed == nil {
		return credential.Secret{}, false, err
	}
	secret, err = s.open(t.Agent, t.Server, t.Principal, sealed)
	return secret, err == nil, err
}

func (s *sharedStorage) set(t *Target, secret credential.Secret, claim string) error {
	plain, err := json.Marshal(sealedSecret{secret.ID(), secret.Hosts(), secret.Reveal()})
	if err != nil {
		return errors.New("the sign-in cannot be encoded")
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	return s.db.Write(ctx, func(tx state.Tx) error {
		held := claim == ""
		err := tx.Query(`SELECT claim FROM signin_claims WHERE claim = $1`, []any{claim},
			func(state.Row) error { held = true; return nil })
		if err == nil && !held {
			err = errOvertaken
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO signins (agent, server, principal, sealed) VALUES ($1, $2, $3, $4)
			ON CONFLICT (agent, server, principal) DO UPDATE SET sealed = excluded.sealed`,
			t.Agent, t.Server, t.Principal, s.keys.Seal(purpose("token", t.Agent, t.Server, t.Principal), plain))
		return err
	})
}

func (s *sharedStorage) remove(t *Target) error {
	return s.write(`DELETE FROM signins WHERE agent = $1 AND server = $2 AND principal = $3`,
		t.Agent, t.Server, t.Principal)
}

func (s *sharedStorage) list(of string) (all []entry, err error) {
	var rows [][]byte
	err = s.read(`SELECT agent, server, principal, sealed FROM signins WHERE principal <> '' AND (principal = $1 OR $2 = '')
		ORDER BY agent, server, principal`, []any{of, of}, func() { all, rows = nil, nil },
		func(r state.Row) error {
			one, sealed := entry{}, []byte{}
			err := r.Scan(&one.agent, &one.server, &one.principal, &sealed)
			all, rows = append(all, one), append(rows, sealed)
			return err
		})
	for i := range all {
		if err == nil {
			all[i].secret, err = s.open(all[i].agent, all[i].server, all[i].principal, rows[i])
		}
	}
	return all, err
}

// read runs one query. It calls reset first, because the database may run the transaction more than once.
func (s *sharedStorage) read(query string, args []any, reset func(), visit func(state.Row) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	return s.db.Read(ctx, func(tx state.Tx) error {
		reset()
		return tx.Query(query, args, visit)
	})
}

func (s *sharedStorage) write(statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	return s.db.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(statement, args...)
		return err
	})
}

func (s *sharedStorage) lock(ctx context.Context, t *Target) (claim string, unlock func(), err error) {
	for {
		claimed, holder, since := false, "", time.Duration(0)
		err := s.db.Write(ctx, func(tx state.Tx) error {
			holder, claim = "", s.db.Owner()+" "+rand.Text()
			n, err := tx.Exec(`INSERT INTO signin_claims (agent, server, principal, claim, until)
				VALUES ($1, $2, $3, $4, $5) ON CONFLICT (agent, server, principal) DO NOTHING`,
				t.Agent, t.Server, t.Principal, claim, s.now().Add(claimTime).UnixMicro())
			if claimed = n == 1; claimed || err != nil {
				return err
			}
			return tx.Query(`SELECT claim, until FROM signin_claims WHERE agent = $1 AND server = $2 AND principal = $3`,
				[]any{t.Agent, t.Server, t.Principal}, func(r state.Row) error {
					var until int64
					err := r.Scan(&holder, &until)
					since = s.now().Sub(time.UnixMicro(until))
					return err
				})
		})
		stale := false
		if err == nil && !claimed {
			stale, err = s.isStale(ctx, holder, since)
		}
		switch {
		case err != nil:
		case stale:
			err = s.write(`DELETE FROM signin_claims WHERE claim = $1`, holder)
		case !claimed:
			err = s.db.Changed(ctx)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return "", nil, errBusy
		case err != nil:
			return "", nil, err
		case claimed:
			// A claim that cannot be deleted expires.
			return claim, func() { _ = s.write(`DELETE FROM signin_claims WHERE claim = $1`, claim) }, nil
		}
	}
}

// isStale reports whether another process may take over a claim that expired the given duration ago. The clocks of two
// machines can differ by minutes. While the claim's process is alive, the claim therefore becomes stale only after a
// further claimPatience.
func (s *sharedStorage) isStale(ctx context.Context, claim string, since time.Duration) (bool, error) {
	if since < 0 || since > claimPatience {
		return since > 0, nil
	}
	owner, _, _ := strings.Cut(claim, " ")
	alive, err := s.db.Alive(ctx, owner)
	return !alive, err
}
