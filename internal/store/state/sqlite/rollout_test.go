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

// During a rollout, two versions share a store: running processes of the older version continue, and new
// processes of the older version are refused. The upgrade makes a copy of the older store.
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
			t.Errorf("write %q failed: %v", id, err)
		}
	}
	write(old, "old, before")
	fresh := testOpen(t, file, list)
	write(fresh, "new")
	write(old, "old, after")
	if n := read(t, fresh, `SELECT COUNT(*) FROM spent`); n != 3 {
		t.Errorf("got %d rows, want 3", n)
	}
	if s, err := open(t.Context(), file, before); !errors.Is(err, state.ErrNewer) {
		t.Errorf("opening with an older version: got %v, %v; want ErrNewer", s, err)
	}
	copied := fmt.Sprintf("%s.v%d", file, len(before))
	if _, err := os.Stat(copied); err != nil {
		t.Fatalf("the upgrade made no backup: %v", err)
	}
	// The older version can open the backup.
	if n := read(t, testOpen(t, copied, before), `SELECT COUNT(*) FROM spent`); n != 1 {
		t.Errorf("the backup has %d rows, want 1", n)
	}
}
