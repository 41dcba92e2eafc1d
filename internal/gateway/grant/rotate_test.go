package grant

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// After a rotation, grants are valid under the new root key. A grant that was modified in the store stays invalid. A
// process with the old root key trusts no grant.
func TestRotation(t *testing.T) {
	each(t, func(t *testing.T, s *Grants) {
		give(t, s, Asked{Subject: "me@local", Actions: []string{"tool.a"}})
		give(t, s, Asked{Subject: "you@local", Actions: []string{"tool.b"}})
		err := s.store.DB.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE grants SET subject = 'me@local' WHERE subject = 'you@local'`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "next"))
		if err != nil {
			t.Fatal(err)
		}
		next := store.New(s.store.DB, keys, nil)
		err = s.store.DB.Write(t.Context(), func(tx state.Tx) error { return s.store.Authority.SignAgain(tx, next.Authority) })
		if err != nil {
			t.Fatal(err)
		}
		list, err := Of(next).List(t.Context())
		if err != nil || len(list) != 2 || list[0].Changed || !list[1].Changed {
			t.Errorf("under the new key, the grants are %+v, %v", list, err)
		}
		if list, err = s.List(t.Context()); !errors.Is(err, authority.ErrChanged) {
			t.Errorf("under the old key, the grants are %+v, %v", list, err)
		}
	})
}
