package cli

import (
	"bufio"
	"context"
	"errors"
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

// sealFlags are the flags about the encryption of a backup.
type sealFlags struct {
	passphrase, identity string
	recipients           []string
	plain                bool
	store                string
}

func newBackup(t *terminal) *cobra.Command {
	var f sealFlags
	cmd := &cobra.Command{
		Use:     "backup FILE",
		GroupID: groupRecords,
		Short:   "Copy everything that ambit keeps into one encrypted file",
		Long: "Copy the store, the keys, the vault, the installed agents, data from registries, policy and settings into one file,\n" +
			"while ambit keeps running. The file contains the keys, so it is encrypted with a passphrase, from a prompt or a file,\n" +
			"or to age recipients. It can be restored into either kind of store.",
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
	var f sealFlags
	cmd := &cobra.Command{
		Use:     "restore FILE",
		GroupID: groupRecords,
		Short:   "Restore a backup",
		Long: "Restore a file of ambit backup into an empty AMBIT_HOME and an empty store: nothing is overwritten. The store is\n" +
			"restored after the files, completely or not at all; an interrupted restore can be repeated. Calls that were running\n" +
			"when the backup was made are treated as after a crash.",
		Example: "  AMBIT_HOME=/srv/ambit ambit restore monday.ambit\n  ambit restore monday.ambit --identity key.txt --store postgres://…",
		Args:    exactly(1, "a file"),
		RunE:    func(cmd *cobra.Command, args []string) error { return t.restore(cmd.Context(), args[0], &f) },
	}
	cmd.Flags().StringVar(&f.passphrase, "passphrase-file", "", "a `file` with the passphrase, instead of asking for it")
	cmd.Flags().StringVar(&f.identity, "identity", "", "a `file` with the age identity of a recipient")
	storeFlag(cmd.Flags(), &f.store)
	return cmd
}

func (t *terminal) backup(ctx context.Context, file string, f *sealFlags) error {
	h := t.home
	lock, err := t.lockFor(ctx, f)
	if err != nil {
		return err
	}
	if _, err := os.Stat(h.Dir()); f.store == "" && errors.Is(err, fs.ErrNotExist) {
		return missing("check AMBIT_HOME", "there is nothing in %s yet", h.Dir())
	}
	b, err := t.openStore(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Journal.Post(ctx); err != nil {
		return missing("", "the write-ahead log cannot be posted: %w", err)
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
		return missing("", "the backup was not made: %w", err)
	}
	t.leftOut(summary.LeftOut)
	if t.json && file != "-" {
		return t.document(summary)
	}
	t.notef("%s and %s are in %s", count(int(summary.Rows), "row"), count(summary.Files, "file"), diag.Printable(file))
	return nil
}

// leftOut warns of files in the home that the backup does not contain.
func (t *terminal) leftOut(names []string) {
	const most = 5
	for _, name := range names[:min(len(names), most)] {
		t.alertf("%s is not in the backup: it is not a regular file; back up its target yourself", diag.Printable(name))
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

// backupTo opens the output of a backup. A file appears complete or not at all.
func (t *terminal) backupTo(file string) (io.Writer, func(error) error, error) {
	if file == "-" {
		if t.file != nil && term.IsTerminal(int(t.file.Fd())) {
			return nil, nil, usage("name a file, or redirect standard output", "a backup cannot be written to a terminal")
		}
		return t.raw, func(err error) error { return err }, nil
	}
	if _, err := os.Lstat(file); err == nil {
		return nil, nil, taken(file)
	}
	dir := filepath.Dir(file)
	// A new file with a random name: another user of the folder cannot have prepared it.
	f, err := os.CreateTemp(dir, ".ambit-*") // mode 0600
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, missing("make it first: mkdir -p "+diag.ShellWord(dir), "there is no folder %s", dir)
	}
	if err != nil {
		return nil, nil, missing("name a file in a folder that you may write to",
			"cannot write to the folder %s: %w", dir, errors.Unwrap(err))
	}
	return f, func(err error) error {
		defer os.Remove(f.Name()) // gone already if it was renamed
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
		return errors.Join(renameNew(f.Name(), file), home.SyncFolder(dir))
	}, nil
}

func taken(file string) error { return no("name another file", "%s already exists", file) }

// lockFor returns how to encrypt a backup.
func (t *terminal) lockFor(ctx context.Context, f *sealFlags) (lock backup.Lock, err error) {
	ways := btoi(f.plain) + btoi(f.passphrase != "") + btoi(len(f.recipients) > 0)
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

// minPassphrase is the minimum length of the passphrase of a new backup. Old backups with a
// shorter one can still be restored.
const minPassphrase = 12

func longEnough(passphrase string) error {
	if utf8.RuneCountInString(passphrase) < minPassphrase {
		return usage("choose a longer one, or use --recipient age1…",
			"a passphrase of fewer than %d characters can be guessed, and a backup contains your keys", minPassphrase)
	}
	return nil
}

// passphrase reads a passphrase from a file or from the terminal. A new one is checked for its
// length and asked for twice.
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
		return "", usage("a backup contains your keys", "the passphrase is empty")
	}
	if fresh {
		if err := longEnough(string(first)); err != nil {
			return "", err
		}
		again, err := t.askHidden(ctx, in, "once more: ")
		if err != nil || string(again) != string(first) {
			return "", usage("try again", "the two passphrases differ")
		}
	}
	return string(first), nil
}

func (t *terminal) restore(ctx context.Context, file string, f *sealFlags) error {
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
	summary, err := backup.Restore(ctx, src, h, func() (state.DB, error) { return openDB(ctx, h, f.store) })
	if err != nil {
		return restoreFailed(err, file, f)
	}
	return t.show(summary, func() {
		t.notef("restored %s and %s of %s; to check: ambit journal verify",
			count(int(summary.Rows), "row"), count(summary.Files, "file"), summary.Made.Format("2006-01-02 15:04 MST"))
	})
}

// keyFor returns the key of a backup; zero if it is not encrypted.
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

// openDB opens the database alone. terminal.openStore would create keys.
func openDB(ctx context.Context, h home.Home, url string) (db state.DB, err error) {
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

func restoreFailed(err error, file string, f *sealFlags) error {
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed
	}
	switch {
	case errors.Is(err, backup.ErrSealed):
		return no(f.otherKey(), "%w", err)
	case errors.Is(err, backup.ErrHalf):
		return missing("do not start ambit there yet; fix this and restore again: restored files stay as they are",
			"the restore was interrupted: %w", err)
	case errors.Is(err, backup.ErrNotEmpty):
		hint := "restore into a new home: AMBIT_HOME=FOLDER ambit restore " + diag.ShellWord(file)
		if f.store != "" {
			hint += " --store URL, with an empty database"
		}
		return no(hint, "nothing was restored: %w", err)
	case errors.Is(err, backup.ErrSchema):
		return no("", "nothing was restored: %w", err)
	case errors.Is(err, backup.ErrFormat):
		return no("check that it is a complete file of ambit backup; if it is damaged, use another copy", "nothing was restored: %w", err)
	case errors.Is(err, state.ErrReadOnly), errors.Is(err, state.ErrFull):
		return err
	}
	return missing("", "nothing was restored: %w", err)
}

// otherKey is the hint if a key does not open a backup.
func (f *sealFlags) otherKey() string {
	switch {
	case f.identity != "":
		return "use the --identity of one of its recipients, or its --passphrase-file"
	case f.passphrase != "":
		return "check that its passphrase is in " + f.passphrase + "; a backup made with --recipient needs --identity"
	}
	return "wrong passphrase; try again. A backup made with --recipient needs --identity"
}
