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

// openStore opens the store, the keys and the journal of the home, or those at a
// postgres:// URL. It warns if the daemon of this home uses another store.
func (t *terminal) openStore(ctx context.Context, storeURL string) (*store.Store, error) {
	t.warnElsewhere(ctx, storeURL)
	return t.openStoreWith(ctx, storeURL, store.Open)
}

// warnElsewhere warns if no store is named and the daemon uses another one.
func (t *terminal) warnElsewhere(ctx context.Context, storeURL string) {
	if storeURL == "" {
		if d := t.daemonElsewhere(ctx); d != nil {
			t.warnf("the daemon at %s keeps its state at %s, but this command uses the store in AMBIT_HOME; "+
				"choose the daemon's store with --store", d.URL, diag.Printable(d.Store))
		}
	}
}

// sharedStore is openStore for verbs that read or decide what the daemon records: without a
// URL it opens the store of the daemon of this home.
func (t *terminal) sharedStore(ctx context.Context, storeURL string) (*store.Store, error) {
	if d := t.sharedDaemon(ctx); storeURL == "" && d != nil {
		t.notef("%s", t.paint(dim, "this is the store of the daemon at "+d.URL+": "+diag.Printable(d.Store)))
		return t.openStoreWith(ctx, d.Store, store.Open)
	}
	return t.openStore(ctx, storeURL)
}

// sharedDaemon returns the daemon of this home if sharedStore opens its store.
func (t *terminal) sharedDaemon(ctx context.Context) *daemon.Client {
	if d := t.daemonElsewhere(ctx); d != nil && (!d.StorePassword || os.Getenv("PGPASSWORD") != "") {
		return d
	}
	return nil
}

// hasStore reports whether there is a store to read. Opening a store that does not exist
// would create it, with keys of its own.
func (t *terminal) hasStore(ctx context.Context, storeURL string) bool {
	if _, err := os.Stat(t.home.State()); storeURL != "" || !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	t.warnElsewhere(ctx, storeURL)
	return false
}

// hasSharedStore is hasStore for sharedStore.
func (t *terminal) hasSharedStore(ctx context.Context, storeURL string) bool {
	return storeURL == "" && t.sharedDaemon(ctx) != nil || t.hasStore(ctx, storeURL)
}

// requireSharedStore ends a verb that cannot create the shared store.
func (t *terminal) requireSharedStore(ctx context.Context, storeURL string) error {
	if t.hasSharedStore(ctx, storeURL) {
		return nil
	}
	return t.noStore()
}

func (t *terminal) noStore() error {
	return missing("the first call creates it; if you made calls before, check AMBIT_HOME",
		"there is no journal in %s yet", t.home.Dir())
}

// daemonElsewhere returns the daemon of this home if it runs and uses a store outside
// the home.
func (t *terminal) daemonElsewhere(ctx context.Context) *daemon.Client {
	d, err := daemon.FindDaemon(t.home)
	if err != nil || d.Store == "" || !store.IsURL(d.Store) || !d.Alive(ctx) {
		return nil
	}
	return d
}

// withoutPassword returns the URL of a store without its password, and whether it had one.
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

func (t *terminal) openStoreWith(
	ctx context.Context, storeURL string, open func(context.Context, home.Home, string) (*store.Store, error),
) (*store.Store, error) {
	if err := isStore(storeURL); err != nil {
		return nil, err
	}
	b, err := open(ctx, t.home, storeURL)
	if err != nil {
		return nil, notOpened(t.home, storeURL, err)
	}
	return b, nil
}

// isStore checks the value of --store.
func isStore(url string) error {
	if !store.IsURL(url) {
		return usage("leave it out for the store in AMBIT_HOME", "a store is named by a postgres:// URL")
	}
	return nil
}

// notOpened explains why a store could not be opened, with a hint how to fix it.
func notOpened(h home.Home, url string, err error) error {
	const again = "AMBIT_HOME=FOLDER ambit restore BACKUP"
	f := &failure{code: exitMissing, err: oneLine{err}}
	switch {
	case errors.Is(err, state.ErrNetworkDisk):
		f.hint = "set AMBIT_HOME to a folder on a local disk, or use --store postgres://…"
	case errors.Is(err, identity.ErrNoRoot) && url == "":
		f.hint = "put the file back: " + again + " creates a new folder that has it in keys. To start again, " +
			"without the old journal and store, move state.db* and daybooks out of " + diag.ShellWord(h.Dir())
	case errors.Is(err, store.ErrBehind):
		f.hint = "hand it over to the newest root: " + rotating(url)
	case errors.Is(err, store.ErrBrokenOff):
		f.hint = "finish the rotation: " + rotating(url)
	case errors.Is(err, identity.ErrOldRoot):
		f.err = oneLine{fmt.Errorf("%w than the one in %s", err, h.Root())}
		f.hint = "copy keys/root from where it was rotated, or from a backup made since"
		if _, err := os.Stat(h.State()); err == nil && url != "" {
			f.hint = homeOfItsOwn(h)
		}
	case errors.Is(err, identity.ErrNoRoot), errors.Is(err, identity.ErrOtherRoot) && url != "":
		f.hint = "copy keys/root from a machine that uses this store, or from a backup: " + again +
			" creates a new folder that has it. To start again, use an empty database"
		if _, err := os.Stat(h.State()); err == nil {
			f.hint = homeOfItsOwn(h)
		}
	case errors.Is(err, identity.ErrOtherRoot):
		f.err = oneLine{fmt.Errorf("%w than the one in %s", err, h.Root())}
		f.hint = "put its own root key back: " + again + " creates a new folder that has it in keys"
	case errors.Is(err, state.ErrDamaged) && url == "":
		f.hint = "restore a backup into a new folder: " + again + ". Keep the damaged file: parts of it may still be readable"
	case url != "":
		f.hint = "check that PostgreSQL is running and that the URL is right"
	}
	return f
}

// homeOfItsOwn is the hint if the root key of this home belongs to another store.
func homeOfItsOwn(h home.Home) string {
	return "use a separate AMBIT_HOME for this store, with keys/root from a machine that uses it: " +
		"the root key here belongs to the store in " + diag.ShellWord(h.Dir())
}

// rotating returns the command that rotates the root of a store.
func rotating(url string) string {
	if url != "" {
		return "ambit rotate root --store postgres://…"
	}
	return "ambit rotate root"
}

// oneLine is an error with its line breaks replaced by spaces.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
