package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// If the store cannot be closed, ambit key exits with exitMissing, not with exitNo.
func TestKeyStoreCannotBeClosed(t *testing.T) {
	term := newTerminal(strings.NewReader(""), io.Discard, io.Discard)
	term.home = home.At(t.TempDir())
	err := term.apiKeys(t.Context(), "", func(keys *identity.APIKeys) error {
		if _, _, err := keys.New(t.Context(), identity.KeySpec{}); err != nil {
			return err
		}
		db, err := sqlite.Open(t.Context(), term.home.State())
		if err != nil {
			return err
		}
		defer db.Close()
		return db.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec("DROP TABLE checkpoints")
			return err
		})
	})
	if err == nil || failureOf(err).code != exitMissing || !strings.Contains(err.Error(), "checkpoints") {
		t.Errorf("got %v, want an error about checkpoints with the code exitMissing", err)
	}
}
