package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// books opens the store, the keys and the journal: those of the home, or those
// at a postgres:// URL. If the daemon of this home keeps its own elsewhere, that
// is said.
func (t *terminal) books(ctx context.Context, storeURL string) (*store.Store, error) {
	t.elsewhere(ctx, storeURL)
	return t.openBooks(ctx, storeURL, store.Open)
}

// elsewhere warns whoever names no store, and may mean the daemon's.
func (t *terminal) elsewhere(ctx context.Context, storeURL string) {
	if storeURL == "" {
		if d := daemonElsewhere(ctx); d != nil {
			t.warnf("the daemon at %s keeps its state at %s, and this looks at the store in AMBIT_HOME; name the other one with --store", d.URL, diag.Printable(d.Store))
		}
	}
}

// sharedBooks are books for verbs that ask what has happened, or decide about it:
// without a URL they are those of the daemon of this home, wherever it keeps them.
func (t *terminal) sharedBooks(ctx context.Context, storeURL string) (*store.Store, error) {
	if d := sharedDaemon(ctx); storeURL == "" && d != nil {
		t.notef("%s", t.paint(dim, "this is the store of the daemon at "+d.URL+": "+diag.Printable(d.Store)))
		return t.openBooks(ctx, d.Store, store.Open)
	}
	return t.books(ctx, storeURL)
}

// sharedDaemon is the daemon of this home whose store sharedBooks opens.
func sharedDaemon(ctx context.Context) *daemon.Client {
	if d := daemonElsewhere(ctx); d != nil && (!d.StorePassword || os.Getenv("PGPASSWORD") != "") {
		return d
	}
	return nil
}

// begun reports whether there is a store to look into, whatever else the home has: one
// would be made, with keys of its own, just to be called whole and copied.
func (t *terminal) begun(ctx context.Context, storeURL string) (bool, error) {
	h := t.home
	if _, err := os.Stat(h.State()); storeURL != "" || !errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	t.elsewhere(ctx, storeURL)
	return false, nil
}

// sharedBegun is begun for sharedBooks.
func (t *terminal) sharedBegun(ctx context.Context, storeURL string) (bool, error) {
	if storeURL == "" && sharedDaemon(ctx) != nil {
		return true, nil
	}
	return t.begun(ctx, storeURL)
}

// wantBegun is the end of a verb that needs what begun looked for.
func wantBegun(ok bool, err error) error {
	if ok || err != nil {
		return err
	}
	h, err := home.Find()
	if err != nil {
		return err
	}
	return &failure{code: exitMissing, err: fmt.Errorf("there is no journal in %s yet", h.Dir()), hint: "it begins with the first call; if there were some, check AMBIT_HOME"}
}

// daemonElsewhere is the daemon of this home if one runs and keeps its state
// outside of it.
func daemonElsewhere(ctx context.Context) *daemon.Client {
	h, err := home.Find()
	if err != nil {
		return nil
	}
	d, err := daemon.FindDaemon(h)
	if err != nil || d.Store == "" || !store.IsURL(d.Store) || !d.Alive(ctx) {
		return nil
	}
	return d
}

// withoutPassword is the address of a store as it may be written down, and whether
// a password was left out of it.
func withoutPassword(storeURL string) (address string, left bool) {
	u, err := url.Parse(storeURL)
	if err != nil || u.Scheme == "" {
		return "", false
	}
	if _, left = u.User.Password(); left {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if query.Has(name) {
			query.Del(name)
			left = true
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), left
}

// openBooks opens the books of the home, or those at a URL.
func (t *terminal) openBooks(ctx context.Context, storeURL string, open func(context.Context, home.Home, string) (*store.Store, error)) (*store.Store, error) {
	if err := isStore(storeURL); err != nil {
		return nil, err
	}
	h := t.home
	b, err := open(ctx, h, storeURL)
	if err != nil {
		return nil, notOpened(h, storeURL, err)
	}
	return b, nil
}

// isStore refuses what --store does not take.
func isStore(url string) error {
	if !store.IsURL(url) {
		return usage("leave it out for the store in AMBIT_HOME", "a store is named by a postgres:// URL")
	}
	return nil
}

// notOpened is why a store could not be opened, and what to do about it.
func notOpened(h home.Home, url string, err error) error {
	const again = "AMBIT_HOME=FOLDER ambit restore BACKUP"
	f := &failure{code: exitMissing, err: oneLine{err}}
	switch {
	case errors.Is(err, state.ErrNetworkDisk):
		f.hint = "set AMBIT_HOME to a folder on a local disk, or use --store postgres://…"
	case errors.Is(err, identity.ErrNoRoot) && url == "":
		f.hint = "put the file back: " + again + " makes a new folder that has it in keys. To start anew, without the journal and what was kept with it, move state.db* and daybooks out of " + diag.ShellWord(h.Dir())
	case errors.Is(err, store.ErrBehind):
		f.hint = "hand it over to the newest: " + rotating(url)
	case errors.Is(err, store.ErrBrokenOff):
		f.hint = "finish it: " + rotating(url)
	case errors.Is(err, identity.ErrOldRoot):
		f.err = oneLine{fmt.Errorf("%w than the one in %s", err, h.Root())}
		f.hint = "copy keys/root from where it was rotated, or from a backup made since"
		if _, err := os.Stat(h.State()); err == nil && url != "" {
			f.hint = homeOfItsOwn(h)
		}
	case errors.Is(err, identity.ErrNoRoot), errors.Is(err, identity.ErrOtherRoot) && url != "":
		f.hint = "copy keys/root from a machine that uses this store, or from a backup: " + again + " makes a new folder that has it. To start anew, use an empty database"
		if _, err := os.Stat(h.State()); err == nil {
			f.hint = homeOfItsOwn(h)
		}
	case errors.Is(err, identity.ErrOtherRoot):
		f.err = oneLine{fmt.Errorf("%w than the one in %s", err, h.Root())}
		f.hint = "put its own back: " + again + " makes a new folder that has it in keys"
	case errors.Is(err, state.ErrDamaged) && url == "":
		f.hint = "restore a backup into a new folder: " + again + ". Keep the damaged file: parts of it may be read still"
	case url != "":
		f.hint = "is PostgreSQL running, and does the URL name it?"
	}
	return f
}

// homeOfItsOwn is what to do where the root here is that of another store.
func homeOfItsOwn(h home.Home) string {
	return "use an AMBIT_HOME of its own, with keys/root from a machine that uses this store: the one here is that of the store in " + diag.ShellWord(h.Dir())
}

// rotating is how to rotate the root of a store.
func rotating(url string) string {
	if url != "" {
		return "ambit rotate root --store postgres://…"
	}
	return "ambit rotate root"
}

// oneLine is an error whose words go on several lines, on one.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
