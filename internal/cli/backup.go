package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/backup"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/postgres"
	"github.com/ambit-run/ambit/internal/store/state/sqlite"
)

type sealFlags struct {
	passphrase, identity string
	recipients           []string
	plain                bool
	store                string
}

func newBackup(t *terminal) *cobra.Command {
	var f sealFlags
	cmd := verb("backup FILE", exactly(1, "a file"), func(ctx context.Context, args []string) error {
		return t.backup(ctx, args[0], &f)
	})
	cmd.Flags().StringVar(&f.passphrase, "passphrase-file", "",
		"read the passphrase from this `file` instead of asking for it")
	cmd.Flags().StringArrayVar(&f.recipients, "recipient", nil,
		"encrypt for the owner of this age `key` (age1…); can be repeated")
	cmd.Flags().BoolVar(&f.plain, "plain", false, "do not encrypt the backup (anyone who reads it gets your keys)")
	sharedStoreFlag(cmd.Flags(), &f.store)
	return cmd
}

func newRestore(t *terminal) *cobra.Command {
	var f sealFlags
	cmd := verb("restore FILE", exactly(1, "a file"), func(ctx context.Context, args []string) error {
		return t.restore(ctx, args[0], &f)
	})
	cmd.Flags().StringVar(&f.passphrase, "passphrase-file", "",
		"read the passphrase from this `file` instead of asking for it")
	cmd.Flags().StringVar(&f.identity, "identity", "", "decrypt with the age identity in this `file`")
	storeFlag(cmd.Flags(), &f.store)
	return cmd
}

func (t *terminal) backup(ctx context.Context, file string, f *sealFlags) error {
	lock, err := t.lockFor(ctx, f)
	if err != nil {
		return err
	}
	if _, err := os.Stat(t.home.Dir()); f.store == "" && errors.Is(err, fs.ErrNotExist) {
		return missing("check AMBIT_HOME", "the folder %s does not exist, so nothing was backed up", t.home.Dir())
	}
	// Without --store, return an error instead of backing up a store that the daemon does not use.
	if d := t.daemonElsewhere(); f.store == "" && d != nil && t.sharedDaemon() == nil {
		return missing("add --store with the daemon's URL, or set PGPASSWORD to the password of the database",
			"nothing was backed up: the daemon at %s keeps its state at %s, and that URL needs a password",
			d.URL, diag.Printable(d.Store))
	}
	b, err := t.sharedStore(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Journal.Post(ctx); err != nil {
		return missing("", "the write-ahead log cannot be copied into the journal: %w", err)
	}
	var summary backup.Summary
	err = t.writeBackup(file, func(out io.Writer) error {
		sealed, err := lock.Seal(out)
		if err != nil {
			return err
		}
		summary, err = backup.Write(ctx, sealed, t.home, b.DB, version)
		return errors.Join(err, sealed.Close())
	})
	if err != nil {
		return err
	}
	t.warnLeftOut(summary.LeftOut)
	if t.json && file != "-" {
		return t.document(summary)
	}
	t.notef("wrote %s and %s to %s", count(int(summary.Rows), "row"), count(summary.Files, "file"), diag.Printable(file))
	return nil
}

// warnLeftOut warns about files in the home folder that the backup does not contain.
func (t *terminal) warnLeftOut(names []string) {
	const most = 5
	for _, name := range names[:min(len(names), most)] {
		t.alertf("%s is not in the backup, because it is not a regular file; back up the target of a link yourself",
			diag.Printable(name))
	}
	if more := len(names) - most; more > 0 {
		t.alertf("the backup also omits %s for the same reason; to list all omitted files, use --json",
			count(more, "more file"))
	}
}

// writeBackup creates the backup file and calls the given function to write its content. The file name "-" means
// standard output. If the function fails, no file remains.
func (t *terminal) writeBackup(file string, write func(io.Writer) error) error {
	failed := func(err error) error { return missing("", "the backup was not made: %w", err) }
	taken := no("choose another file name", "%s already exists", file)
	if file == "-" {
		if t.file != nil && term.IsTerminal(int(t.file.Fd())) {
			return usage("give a file name, or redirect standard output", "a backup cannot be written to a terminal")
		}
		if err := write(t.raw); err != nil {
			return failed(err)
		}
		return nil
	}
	if _, err := os.Lstat(file); err == nil {
		return taken
	}
	dir := filepath.Dir(file)
	// The random name prevents another user from creating the file in advance.
	f, err := os.CreateTemp(dir, ".ambit-*") // mode 0600
	if errors.Is(err, fs.ErrNotExist) {
		return missing("run: mkdir -p "+diag.ShellWord(dir), "there is no folder %s", dir)
	}
	if err != nil {
		return missing("choose a folder that you can write to",
			"cannot write to the folder %s: %w", dir, errors.Unwrap(err))
	}
	defer os.Remove(f.Name()) // Remove has no effect after the rename
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return failed(err)
	}
	err = errors.Join(renameNew(f.Name(), file), home.SyncFolder(dir))
	switch {
	case errors.Is(err, fs.ErrExist):
		return taken
	case err != nil:
		return failed(err)
	}
	return nil
}

// lockFor returns the encryption settings for a new backup: a passphrase or recipients. With --plain, the settings are
// empty.
func (t *terminal) lockFor(ctx context.Context, f *sealFlags) (lock backup.Lock, err error) {
	lock.Recipients = f.recipients
	switch ways := btoi(f.plain) + btoi(f.passphrase != "") + btoi(len(f.recipients) > 0); {
	case ways > 1:
		return lock, usage("use only one of these flags", "--passphrase-file, --recipient and --plain cannot be combined")
	case ways == 0 || f.passphrase != "":
		lock.Passphrase, err = t.passphrase(ctx, f.passphrase, true)
	}
	return lock, err
}

// minPassphrase is the minimum number of characters in the passphrase of a new backup. "ambit restore" also accepts
// shorter passphrases.
const minPassphrase = 12

// passphrase reads a passphrase from a file, or from the terminal if the file name is empty. If fresh is true, the
// passphrase is for a new backup. It must then have at least minPassphrase characters, and a user at the terminal must
// type it twice.
func (t *terminal) passphrase(ctx context.Context, file string, fresh bool) (string, error) {
	in, _ := t.in.(*os.File)
	var text []byte
	var err error
	switch {
	case file != "":
		if text, err = os.ReadFile(file); err != nil {
			return "", unreadable(file, err)
		}
		text = bytes.TrimRight(text, "\r\n")
	case in == nil || !term.IsTerminal(int(in.Fd())):
		return "", usage("use --passphrase-file FILE; for a new backup, --recipient age1… also works",
			"ambit cannot ask for the passphrase, because standard input is not a terminal")
	default:
		if text, err = t.askHidden(ctx, in, "passphrase for the backup: "); err != nil {
			return "", usage("", "the passphrase cannot be read: %w", err)
		}
	}
	switch {
	case len(text) == 0:
		return "", usage("choose a passphrase, because a backup contains your keys", "the passphrase is empty")
	case fresh && utf8.RuneCount(text) < minPassphrase:
		return "", usage("choose a longer passphrase, or use --recipient age1…",
			"a passphrase of fewer than %d characters can be guessed, and a backup contains your keys", minPassphrase)
	case fresh && file == "":
		again, err := t.askHidden(ctx, in, "the passphrase again: ")
		if err != nil || !bytes.Equal(again, text) {
			return "", usage("try again", "the two passphrases differ")
		}
	}
	return string(text), nil
}

func (t *terminal) restore(ctx context.Context, file string, f *sealFlags) error {
	if err := checkStoreURL(f.store); err != nil {
		return err
	}
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
	// Open only the database, because terminal.openStore would also create new keys.
	summary, err := backup.Restore(ctx, src, t.home, func() (db state.DB, err error) {
		if f.store == "" {
			db, err = sqlite.Open(ctx, t.home.State())
		} else {
			db, err = postgres.Open(ctx, f.store)
		}
		if err != nil {
			return nil, notOpened(t.home, f.store, err)
		}
		return db, nil
	})
	if err != nil {
		return restoreFailed(err, file, f)
	}
	return t.show(summary, func() {
		verify := "ambit journal verify"
		if f.store != "" {
			verify += " --store URL"
		}
		t.notef("restored %s and %s from the backup of %s; to check the journal, run: %s", count(int(summary.Rows), "row"),
			count(summary.Files, "file"), summary.Made.Format("2006-01-02 15:04 MST"), verify)
	})
}

// keyFor returns the key that decrypts the backup. The key is empty if the backup is not encrypted.
func (t *terminal) keyFor(ctx context.Context, file string, f *sealFlags) (key backup.Key, err error) {
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

func restoreFailed(err error, file string, f *sealFlags) error {
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed
	}
	switch {
	case errors.Is(err, backup.ErrSealed):
		return no(f.wrongKeyHint(), "%w", err)
	case errors.Is(err, backup.ErrHalf):
		return missing("fix the problem and restore again before you start ambit here; files that were restored are kept",
			"the restore was interrupted: %w", err)
	case errors.Is(err, backup.ErrNotEmpty):
		hint := "to restore into a new home, run: AMBIT_HOME=FOLDER ambit restore " + diag.ShellWord(file)
		if f.store != "" {
			hint += " --store URL, with the URL of an empty database"
		}
		return no(hint, "nothing was restored: %w", err)
	case errors.Is(err, backup.ErrSchema):
		return no("", "nothing was restored: %w", err)
	case errors.Is(err, backup.ErrFormat):
		return no("check that the file is a complete ambit backup; if the file is damaged, use another copy",
			"nothing was restored: %w", err)
	case errors.Is(err, state.ErrReadOnly), errors.Is(err, state.ErrFull):
		return err
	}
	return missing("", "nothing was restored: %w", err)
}

// wrongKeyHint returns the hint to show if the key does not decrypt the backup.
func (f *sealFlags) wrongKeyHint() string {
	switch {
	case f.identity != "":
		return "use the --identity of one of the backup's recipients, or --passphrase-file if the backup has a passphrase"
	case f.passphrase != "":
		return "check that " + f.passphrase + " contains the backup's passphrase; " +
			"a backup made with --recipient needs --identity"
	}
	return "the passphrase is wrong; try again, or use --identity FILE if the backup was made with --recipient"
}
