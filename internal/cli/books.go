package cli

import (
	"context"
	"errors"

	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/state"
)

// books opens the store, the keys and the journal: those of the home, or those
// at a postgres:// URL.
func (t *terminal) books(ctx context.Context, url string) (*books.Books, error) {
	if !books.IsURL(url) {
		return nil, usage("leave it out for the store in AMBIT_HOME", "a store is named by a postgres:// URL")
	}
	h, err := home.Find()
	if err != nil {
		return nil, &failure{code: exitMissing, err: err}
	}
	b, err := books.Open(ctx, h, url)
	if err != nil {
		f := &failure{code: exitMissing, err: err}
		if errors.Is(err, state.ErrNetworkDisk) {
			f.hint = "set AMBIT_HOME to a folder on a local disk, or use --store postgres://…"
		}
		return nil, f
	}
	return b, nil
}
