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
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// openStore opens the store at the given URL, or the store in the home if the URL is empty. It warns if the daemon uses
// a different store.
func (t *terminal) openStore(ctx context.Context, storeURL string) (*store.Store, error) {
	t.warnElsewhere(storeURL)
	return t.openStoreWith(ctx, storeURL, store.Open)
}

// warnElsewhere warns if the daemon's store is not in the home. It does not warn if the user specified a store.
func (t *terminal) warnElsewhere(storeURL string) {
	if storeURL == "" {
		if d := t.daemonElsewhere(); d != nil {
			t.warnf("the daemon at %s keeps its state at %s, but this command uses the store in AMBIT_HOME; "+
				"choose the daemon's store with --store", d.URL, diag.Printable(d.Store))
		}
	}
}

// sharedStore opens the store at the given URL. If the URL is empty, it opens the store of the daemon that sharedDaemon
// returns, or the store in the home if sharedDaemon returns nil.
func (t *terminal) sharedStore(ctx context.Context, storeURL string) (*store.Store, error) {
	if d := t.sharedDaemon(); storeURL == "" && d != nil {
		t.notef("%s", t.paint(dim, "using the store of the daemon at "+d.URL+": "+diag.Printable(d.Store)))
		return t.openStoreWith(ctx, d.Store, store.Open)
	}
	return t.openStore(ctx, storeURL)
}

// existingStore is like sharedStore, but returns nil if there is no store.
func (t *terminal) existingStore(ctx context.Context, storeURL string) (*store.Store, error) {
	if !t.hasSharedStore(storeURL) {
		return nil, nil
	}
	return t.sharedStore(ctx, storeURL)
}

// withSharedStore calls f with the store that sharedStore opens.
func (t *terminal) withSharedStore(ctx context.Context, storeURL string, f func(*store.Store) error) error {
	b, err := t.sharedStore(ctx, storeURL)
	if err != nil {
		return err
	}
	return errors.Join(f(b), closing(b))
}

func closing(b *store.Store) error {
	if err := b.Close(); err != nil {
		return no("", "the store cannot be closed: %w", err)
	}
	return nil
}

// sharedDaemon returns the home's daemon if its store is not in the home and this command can open the store.
// Otherwise it returns nil.
func (t *terminal) sharedDaemon() *daemon.Client {
	if d := t.daemonElsewhere(); d != nil && (!d.StorePassword || os.Getenv("PGPASSWORD") != "") {
		return d
	}
	return nil
}

// hasStore reports whether the store exists. Verbs that only read must call hasStore first, because opening a missing
// store creates the store and new keys.
func (t *terminal) hasStore(storeURL string) bool {
	if _, err := os.Stat(t.home.State()); storeURL != "" || !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	t.warnElsewhere(storeURL)
	return false
}

// hasSharedStore is like hasStore, but for the store that sharedStore opens.
func (t *terminal) hasSharedStore(storeURL string) bool {
	return storeURL == "" && t.sharedDaemon() != nil || t.hasStore(storeURL)
}

// withExistingStore is like withSharedStore, but returns an error if the store does not exist.
func (t *terminal) withExistingStore(ctx context.Context, storeURL string, f func(*store.Store) error) error {
	if !t.hasSharedStore(storeURL) {
		return t.noStore()
	}
	return t.withSharedStore(ctx, storeURL, f)
}

func (t *terminal) noStore() error {
	return missing("the first call creates the store with its journal; if you made calls before, check AMBIT_HOME",
		"there is no store in %s yet", t.home.Dir())
}

// daemonElsewhere returns the home's daemon if its store is not in the home. Otherwise it returns nil. The daemon may
// have been killed, but its store still contains the keys, the approvals and the journal.
func (t *terminal) daemonElsewhere() *daemon.Client {
	d, err := daemon.FindDaemon(t.home)
	if err != nil || d.Store == "" || !store.IsURL(d.Store) {
		return nil
	}
	return d
}

// withoutPassword removes the password from a store's URL. The second result reports whether the URL had a password.
func withoutPassword(storeURL string) (address string, removed bool) {
	u, err := url.Parse(storeURL)
	if err != nil || u.Scheme == "" {
		return "", false
	}
	if _, removed = u.User.Password(); removed {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if query.Has(name) {
			query.Del(name)
			removed = true
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), removed
}

func (t *terminal) openStoreWith(
	ctx context.Context, storeURL string, open func(context.Context, home.Home, string) (*store.Store, error),
) (*store.Store, error) {
	if err := checkStoreURL(storeURL); err != nil {
		return nil, err
	}
	b, err := open(ctx, t.home, storeURL)
	if err != nil {
		return nil, notOpened(t.home, storeURL, err)
	}
	b.Authority.DB.Warn = func(err error) { t.warnf("%v", err) }
	if storeURL == "" {
		if err := beginRegister(ctx, t.home, b.Authority); err != nil {
			return nil, errors.Join(notOpened(t.home, storeURL, err), b.Close())
		}
	}
	return b, nil
}

// beginRegister adopts the rows of a SQLite store that an earlier version of ambit made. It does not ask the user,
// because only the owner can write to the home. It adopts rows only once: if the register disappears later, something
// other than ambit deleted it, and the owner must run "ambit key adopt", as for a PostgreSQL store.
func beginRegister(ctx context.Context, h home.Home, r *authority.Register) error {
	if _, err := os.Stat(h.Begun()); err == nil {
		return nil
	}
	if err := r.Begin(ctx, claims); err != nil {
		return err
	}
	return home.Replace(h.Begun(), 0o600, nil)
}

// checkStoreURL returns an error if the value of --store is not valid.
func checkStoreURL(url string) error {
	if !store.IsURL(url) {
		return usage("leave out --store to use the store in AMBIT_HOME", "--store must be a postgres:// URL")
	}
	return nil
}

// notOpened adds a hint to the error for a store that cannot be opened.
func notOpened(h home.Home, url string, err error) error {
	const again = "AMBIT_HOME=FOLDER ambit restore BACKUP"
	f := &failure{code: exitMissing, err: oneLine{err}}
	switch {
	case errors.Is(err, state.ErrNewer):
		f.hint = "install the newer version of ambit, or use another store with AMBIT_HOME or --store"
	case errors.Is(err, state.ErrNetworkDisk):
		f.hint = "set AMBIT_HOME to a folder on a local disk, or use --store postgres://…"
	case errors.Is(err, identity.ErrNoRoot) && url == "":
		f.hint = "to get the root key back, run: " + again + " (then copy FOLDER/keys/root). To start again, " +
			"without the old journal and store, move state.db* and daybooks/ out of " + diag.ShellWord(h.Dir())
	case errors.Is(err, store.ErrBehind):
		f.hint = "to move the store to the newest root key, run: " + rotateCommand(url)
	case errors.Is(err, store.ErrInterrupted):
		f.hint = "to finish the rotation, run: " + rotateCommand(url)
	case errors.Is(err, identity.ErrOldRoot):
		f.err = oneLine{fmt.Errorf("%w than the one in %s", err, h.Root())}
		f.hint = "copy keys/root from the machine that rotated the key, or from a backup made after the rotation"
		if _, err := os.Stat(h.State()); err == nil && url != "" {
			f.hint = separateHome(h)
		}
	case errors.Is(err, identity.ErrNoRoot), errors.Is(err, identity.ErrOtherRoot) && url != "":
		f.hint = "copy keys/root from a machine that uses this store, or from a backup (" + again +
			" creates a new folder with that file). To start again, use an empty database"
		if _, err := os.Stat(h.State()); err == nil {
			f.hint = separateHome(h)
		}
	case errors.Is(err, identity.ErrOtherRoot):
		f.err = oneLine{fmt.Errorf("%w than the one in %s", err, h.Root())}
		f.hint = "to get the store's root key back, run: " + again + " (then copy FOLDER/keys/root)"
	case errors.Is(err, state.ErrDamaged) && url == "":
		f.hint = "to restore into a new folder, run: " + again + ". Keep the damaged file; parts may be readable"
	case url != "":
		f.hint = "check that PostgreSQL is running and that the URL is right"
	}
	return f
}

// separateHome returns the hint for a store that cannot be used with this home, because the root key of this home
// belongs to another store.
func separateHome(h home.Home) string {
	return "use a separate AMBIT_HOME for this store, and copy the file keys/root into it from a machine that uses the " +
		"store; the root key here belongs to the store in " + diag.ShellWord(h.Dir())
}

// rotateCommand returns the command that rotates the root key of a store.
func rotateCommand(url string) string {
	if url != "" {
		return "ambit rotate root --store postgres://…"
	}
	return "ambit rotate root"
}

// oneLine is an error whose message has no line breaks.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
