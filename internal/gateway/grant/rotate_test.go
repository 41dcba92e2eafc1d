package grant

import (
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// After Resign, grants are valid under the new key and not under the old key. A grant that was modified in the store
// is valid under neither key.
func TestResign(t *testing.T) {
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
		next := &store.Store{DB: s.store.DB, Keys: keys, Journal: journal.New(s.store.DB, keys.Signer(), "test")}
		signed := 0
		err = s.store.DB.Write(t.Context(), func(tx state.Tx) (err error) {
			signed, err = Resign(tx, s.store, next)
			return err
		})
		if err != nil || signed != 1 {
			t.Fatalf("%d grants were signed, want 1: %v", signed, err)
		}
		list, err := Of(next).List(t.Context())
		if err != nil || len(list) != 2 || list[0].Changed || !list[1].Changed {
			t.Errorf("under the new key, the grants are %+v, %v", list, err)
		}
		if list, err = s.List(t.Context()); err != nil || len(list) != 2 || !list[0].Changed || !list[1].Changed {
			t.Errorf("under the old key, the grants are %+v, %v", list, err)
		}
	})
}
