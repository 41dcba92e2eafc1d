package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// Two versions share a store during a rollout: running processes of the older version
// continue, new ones are refused, and there is a copy of the older store.
func TestTwoVersionsSideBySide(t *testing.T) {
	file, list := filepath.Join(t.TempDir(), "state.db"), migrations.List()
	before := list[:len(list)-1]
	old := testOpen(t, file, before)
	write := func(s *store, id string) {
		t.Helper()
		err := s.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`INSERT INTO spent (id, until) VALUES ($1, 1)`, id)
			return err
		})
		if err != nil {
			t.Errorf("%s cannot write: %v", id, err)
		}
	}
	write(old, "old, before")
	fresh := testOpen(t, file, list)
	write(fresh, "new")
	write(old, "old, after")
	if n := read(t, fresh, `SELECT COUNT(*) FROM spent`); n != 3 {
		t.Errorf("there are %d rows, not 3", n)
	}
	if s, err := open(t.Context(), file, before); !errors.Is(err, state.ErrNewer) {
		t.Errorf("an older ambit opens it: %v, %v", s, err)
	}
	copied := fmt.Sprintf("%s.v%d", file, len(before))
	if _, err := os.Stat(copied); err != nil {
		t.Fatalf("there is no backup from before the upgrade: %v", err)
	}
	// That is the way back.
	if n := read(t, testOpen(t, copied, before), `SELECT COUNT(*) FROM spent`); n != 1 {
		t.Errorf("the backup has %d rows, not 1", n)
	}
}
