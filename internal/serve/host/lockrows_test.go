package host

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// Someone who can write to the store but has no root key cannot make ambit forget or mistake the lock file that an
// agent used last. Only a person who accepts a lock file can make the record valid again.
func TestChangedLockRows(t *testing.T) {
	for _, change := range []string{
		`DELETE FROM locks_seen`,
		`DELETE FROM locks_seen WHERE digest = 'newer'`,
		`UPDATE locks_seen SET seen = 9223372036854775807 WHERE digest = 'older'`,
		`UPDATE locks_seen SET digest = 'none' WHERE digest = 'newer'`,
		`INSERT INTO locks_seen (agent, digest, seen) SELECT agent, 'planted', seen + 1 FROM locks_seen WHERE digest = 'newer'`,
	} {
		t.Run(change, func(t *testing.T) {
			statetest.Each(t, func(t *testing.T, connect func() state.DB) {
				keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
				if err != nil {
					t.Fatal(err)
				}
				b := store.New(connect(), keys, nil)
				for _, digest := range []string{"older", "newer"} {
					if err := rememberLock(t.Context(), b, "/agent.json", digest, false); err != nil {
						t.Fatal(err)
					}
				}
				if seen, newest, err := lockSeen(t.Context(), b, "/agent.json", "older"); seen != "older" || newest != "newer" || err != nil {
					t.Fatalf("before the change: %q, %q, %v", seen, newest, err)
				}
				err = b.DB.Write(t.Context(), func(tx state.Tx) error {
					_, err := tx.Exec(change)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if seen, newest, err := lockSeen(t.Context(), b, "/agent.json", "older"); !errors.Is(err, errLockRows) {
					t.Errorf("after the change: %q, %q, %v", seen, newest, err)
				}
				if err := rememberLock(t.Context(), b, "/agent.json", noLock, false); !errors.Is(err, errLockRows) {
					t.Errorf("a start of the agent made the changed record valid: %v", err)
				}
				if err := rememberLock(t.Context(), b, "/agent.json", "newer", true); err != nil {
					t.Fatal(err)
				}
				if _, newest, err := lockSeen(t.Context(), b, "/agent.json", ""); newest != "newer" || err != nil {
					t.Errorf("after a person accepted the lock file: %q, %v", newest, err)
				}
			})
		})
	}
}

// A clock that was ahead does not keep a later lock file from being the last one.
func TestLockRowsWithoutClock(t *testing.T) {
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	b := store.New(statetest.Open(t), keys, nil)
	remember := func(digest string) {
		if err := rememberLock(t.Context(), b, "/agent.json", digest, true); err != nil {
			t.Fatal(err)
		}
	}
	remember("first")
	err = b.DB.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(`UPDATE locks_seen SET seen = seen + 1000000000000`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	remember("second")
	if _, newest, err := lockSeen(t.Context(), b, "/agent.json", ""); newest != "second" || err != nil {
		t.Errorf("the last lock file is %q, %v; want the second", newest, err)
	}
}
