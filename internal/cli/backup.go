package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/backup"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

// sealing are the flags that say how a backup is encrypted, or opened.
type sealing struct {
	passphrase, identity string
	recipients           []string
	plain                bool
	store                string
}

func newBackup(t *terminal) *cobra.Command {
	var f sealing
	cmd := &cobra.Command{
		Use:     "backup FILE",
		GroupID: groupRecords,
		Short:   "Copy everything that ambit keeps into one encrypted file",
		Long: "Copy the store, the keys, the vault, the installed agents, what registries gave, policy and settings into one file,\n" +
			"while everything goes on running. The file holds the keys, so it is encrypted: to a passphrase, which is asked for or\n" +
			"read from a file, or to age recipients. It can be restored into either kind of store.",
		Example: "  ambit backup monday.ambit\n  ambit backup monday.ambit --recipient age1…\n  ambit backup - --passphrase-file key.txt --store postgres://… >monday.ambit",
		Args:    exactly(1, "a file"),
		RunE:    func(cmd *cobra.Command, args []string) error { return t.backup(cmd.Context(), args[0], &f) },
	}
	cmd.Flags().StringVar(&f.passphrase, "passphrase-file", "", "a `file` with the passphrase, instead of asking for it")
	cmd.Flags().StringArrayVar(&f.recipients, "recipient", nil, "encrypt to this age `key` (age1…); more than one may be given")
	cmd.Flags().BoolVar(&f.plain, "plain", false, "do not encrypt it: anyone who reads the file has your keys")
	storeFlag(cmd.Flags(), &f.store)
	return cmd
}

func newRestore(t *terminal) *cobra.Command {
	var f sealing
	cmd := &cobra.Command{
		Use:     "restore FILE",
		GroupID: groupRecords,
		Short:   "Bring back what ambit backup copied",
		Long: "Bring back what ambit backup copied, into an AMBIT_HOME and a store that are empty: nothing is overwritten. The store\n" +
			"comes back whole or not at all, and after the files; a restore that was broken off is simply done again. Calls that\n" +
			"were under way when the backup was made are treated as after a crash.",
		Example: "  AMBIT_HOME=/srv/ambit ambit restore monday.ambit\n  ambit restore monday.ambit --identity key.txt --store postgres://…",
		Args:    exactly(1, "a file"),
		RunE:    func(cmd *cobra.Command, args []string) error { return t.restore(cmd.Context(), args[0], &f) },
	}
	cmd.Flags().StringVar(&f.passphrase, "passphrase-file", "", "a `file` with the passphrase, instead of asking for it")
	cmd.Flags().StringVar(&f.identity, "identity", "", "a `file` with the age identity of a recipient")
	storeFlag(cmd.Flags(), &f.store)
	return cmd
}

func (t *terminal) backup(ctx context.Context, file string, f *sealing) error {
	h := t.home
	lock, err := t.lockFor(ctx, f)
	if err != nil {
		return err
	}
	if _, err := os.Stat(h.Dir()); f.store == "" && errors.Is(err, fs.ErrNotExist) {
		return &failure{code: exitMissing, err: fmt.Errorf("there is nothing in %s yet", h.Dir()), hint: "check AMBIT_HOME"}
	}
	b, err := t.books(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Journal.Post(ctx); err != nil {
		return &failure{code: exitMissing, err: fmt.Errorf("the write-ahead log cannot be posted: %w", err)}
	}
	out, finish, err := t.backupTo(file)
	if err != nil {
		return err
	}
	summary, err := writeBackup(ctx, out, lock, h, b)
	if err = finish(err); errors.Is(err, fs.ErrExist) {
		return taken(file)
	}
	if err != nil {
		return &failure{code: exitMissing, err: fmt.Errorf("the backup was not made: %w", err)}
	}
	t.leftOut(summary.LeftOut)
	if t.json && file != "-" {
		return t.document(summary)
	}
	t.notef("%s and %s are in %s", count(int(summary.Rows), "row"), count(summary.Files, "file"), diag.Printable(file))
	return nil
}

// leftOut says what a backup does not hold, though it lies where files are kept.
func (t *terminal) leftOut(names []string) {
	const most = 5
	for _, name := range names[:min(len(names), most)] {
		t.alertf("%s is not in the backup: it is a link, or no plain file; keep what it leads to yourself", diag.Printable(name))
	}
	if more := len(names) - most; more > 0 {
		t.alertf("the same goes for %s; --json names them all", count(more, "more file"))
	}
}

func writeBackup(ctx context.Context, out io.Writer, lock backup.Lock, h home.Home, b *store.Store) (backup.Summary, error) {
	sealed, err := lock.Seal(out)
	if err != nil {
		return backup.Summary{}, err
	}
	summary, err := backup.Write(ctx, sealed, h, b.DB, version)
	return summary, errors.Join(err, sealed.Close())
}

// backupTo opens where a backup goes. A file appears whole or not at all.
func (t *terminal) backupTo(file string) (io.Writer, func(error) error, error) {
	if file == "-" {
		if t.file != nil && term.IsTerminal(int(t.file.Fd())) {
			return nil, nil, usage("name a file, or redirect it", "a backup is not for a terminal")
		}
		return t.raw, func(err error) error { return err }, nil
	}
	if _, err := os.Lstat(file); err == nil {
		return nil, nil, taken(file)
	}
	dir := filepath.Dir(file)
	// Nobody who may write to the folder can have made it before.
	f, err := os.CreateTemp(dir, ".ambit-*") // mode 0600
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &failure{code: exitMissing, err: fmt.Errorf("there is no folder %s", dir), hint: "make it first: mkdir -p " + diag.ShellWord(dir)}
	}
	if err != nil {
		err = fmt.Errorf("nothing can be written to the folder %s: %w", dir, errors.Unwrap(err))
		return nil, nil, &failure{code: exitMissing, err: err, hint: "name a file in a folder that you may write to"}
	}
	return f, func(err error) error {
		defer os.Remove(f.Name()) // gone already if it was renamed
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
		// A link, unlike a rename, never replaces what is there. Where there are
		// no links, looking first is the best there is.
		err = os.Link(f.Name(), file)
		if _, statErr := os.Lstat(file); err != nil && errors.Is(statErr, fs.ErrNotExist) {
			err = os.Rename(f.Name(), file)
		}
		return errors.Join(err, home.SyncFolder(dir))
	}, nil
}

func taken(file string) error { return no("name another file", "%s is there already", file) }

// lockFor finds out how a backup is to be encrypted.
func (t *terminal) lockFor(ctx context.Context, f *sealing) (lock backup.Lock, err error) {
	ways := 0
	for _, used := range []bool{f.plain, f.passphrase != "", len(f.recipients) > 0} {
		if used {
			ways++
		}
	}
	if ways > 1 {
		return lock, usage("use one of them", "--passphrase-file, --recipient and --plain exclude each other")
	}
	if ways == 1 && f.passphrase == "" {
		lock.Recipients = f.recipients
		return lock, nil
	}
	lock.Passphrase, err = t.passphrase(ctx, f.passphrase, true)
	return lock, err
}

// minPassphrase is how many characters the passphrase of a new backup has at least.
// One that was made with fewer can still be restored.
const minPassphrase = 12

func longEnough(passphrase string) error {
	if utf8.RuneCountInString(passphrase) < minPassphrase {
		return usage("take a longer one, or use --recipient age1…", "a passphrase of fewer than %d characters can be guessed, and a backup holds your keys", minPassphrase)
	}
	return nil
}

// passphrase reads a passphrase from a file, or asks for it. A new one is long, and
// asked for twice.
func (t *terminal) passphrase(ctx context.Context, file string, fresh bool) (string, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", unreadable(file, err)
		}
		line := strings.TrimRight(string(text), "\r\n")
		switch {
		case line == "":
			return "", usage("write the passphrase into it", "%s is empty", file)
		case fresh:
			return line, longEnough(line)
		}
		return line, nil
	}
	in, _ := t.in.(*os.File)
	if in == nil || !term.IsTerminal(int(in.Fd())) {
		return "", usage("use --passphrase-file FILE, or --recipient age1… for a backup", "there is no terminal to ask for the passphrase")
	}
	first, err := t.askHidden(ctx, in, "passphrase of the backup: ")
	if err != nil {
		return "", usage("", "the passphrase cannot be read: %w", err)
	}
	if len(first) == 0 {
		return "", usage("a backup holds your keys", "the passphrase is empty")
	}
	if fresh {
		if err := longEnough(string(first)); err != nil {
			return "", err
		}
		again, err := t.askHidden(ctx, in, "once more: ")
		if err != nil || string(again) != string(first) {
			return "", usage("try again", "the two are not the same")
		}
	}
	return string(first), nil
}

func (t *terminal) restore(ctx context.Context, file string, f *sealing) error {
	if err := isStore(f.store); err != nil {
		return err
	}
	h := t.home
	key, err := t.keyFor(ctx, file, f)
	if err != nil {
		return err
	}
	src := func() (io.ReadCloser, error) {
		in, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		r, err := key.Open(in)
		if err != nil {
			return nil, errors.Join(err, in.Close())
		}
		return struct {
			io.Reader
			io.Closer
		}{r, in}, nil
	}
	summary, err := backup.Restore(ctx, src, h, func() (state.DB, error) { return openStore(ctx, h, f.store) })
	if err != nil {
		return restoreFailed(err, file, f)
	}
	return t.show(summary, func() {
		t.notef("%s and %s of %s are back; check them: ambit journal verify", count(int(summary.Rows), "row"), count(summary.Files, "file"), summary.Made.Format("2006-01-02 15:04 MST"))
	})
}

// keyFor finds out what opens a backup, if it needs opening.
func (t *terminal) keyFor(ctx context.Context, file string, f *sealing) (key backup.Key, err error) {
	in, err := os.Open(file)
	if err != nil {
		return key, unreadable(file, err)
	}
	defer in.Close()
	if !backup.Sealed(bufio.NewReader(in)) {
		return key, nil
	}
	if f.identity != "" {
		text, err := os.ReadFile(f.identity)
		if err != nil {
			return key, unreadable(f.identity, err)
		}
		key.Identities = string(text)
		return key, nil
	}
	key.Passphrase, err = t.passphrase(ctx, f.passphrase, false)
	return key, err
}

// openStore opens no more than the store: whoever opens the books makes keys where
// there are none yet.
func openStore(ctx context.Context, h home.Home, url string) (db state.DB, err error) {
	if url == "" {
		db, err = sqlite.Open(ctx, h.State())
	} else {
		db, err = postgres.Open(ctx, url)
	}
	if err != nil {
		return nil, notOpened(h, url, err)
	}
	return db, nil
}

func restoreFailed(err error, file string, f *sealing) error {
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed
	}
	switch {
	case errors.Is(err, backup.ErrSealed):
		return no(f.otherKey(), "%w", err)
	case errors.Is(err, backup.ErrHalf):
		return &failure{code: exitMissing, err: fmt.Errorf("the restore was broken off: %w", err), hint: "start nothing there yet; fix this, and restore again: restored files stay as they are"}
	case errors.Is(err, backup.ErrNotEmpty):
		hint := "restore into a new home: AMBIT_HOME=FOLDER ambit restore " + diag.ShellWord(file)
		if f.store != "" {
			hint += " --store URL, with an empty database"
		}
		return no(hint, "nothing was restored: %w", err)
	case errors.Is(err, backup.ErrSchema):
		return no("", "nothing was restored: %w", err)
	case errors.Is(err, backup.ErrFormat):
		return no("is it a file of ambit backup, and all of it? If it was cut short or damaged, use another copy", "nothing was restored: %w", err)
	case errors.Is(err, state.ErrReadOnly), errors.Is(err, state.ErrFull):
		return err
	}
	return &failure{code: exitMissing, err: fmt.Errorf("nothing was restored: %w", err)}
}

// otherKey is what to do where a key does not open a backup.
func (f *sealing) otherKey() string {
	switch {
	case f.identity != "":
		return "use the --identity of one of its recipients, or its --passphrase-file"
	case f.passphrase != "":
		return "is its passphrase in another file than " + f.passphrase + "? What was made with --recipient needs --identity"
	}
	return "wrong passphrase; try again. What was made with --recipient needs --identity"
}
