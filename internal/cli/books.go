package cli

import (
	"context"
	"errors"
	"strings"

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
		f := &failure{code: exitMissing, err: oneLine{err}}
		if url != "" {
			f.hint = "is PostgreSQL running, and does the URL name it?"
		}
		if errors.Is(err, state.ErrNetworkDisk) {
			f.hint = "set AMBIT_HOME to a folder on a local disk, or use --store postgres://…"
		}
		return nil, f
	}
	return b, nil
}

// oneLine is an error whose words go on several lines, on one.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
