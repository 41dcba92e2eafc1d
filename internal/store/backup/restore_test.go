package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// backedUp returns a backup of a home with every kind of file.
func backedUp(t *testing.T) []byte {
	t.Helper()
	db := statetest.Open(t)
	h, _ := made(t, db)
	for _, name := range []string{"policy.cedarschema", "guardrails.json", "config.toml", "catalog.json", "secrets/vault", "agents/shop/data/list", "registry/given/a", "registry/pins/b.json", "registry/listings/c"} {
		file := filepath.Join(h.Dir(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("text of "+name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, h, db, "test"); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// filesOf returns the contents of all files in a home, by name.
func filesOf(t *testing.T, h home.Home) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(h.Dir(), func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		rel, _ := filepath.Rel(h.Dir(), file)
		found[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func into(db state.DB) func() (state.DB, error) {
	return func() (state.DB, error) { return db, nil }
}

// If a restore is interrupted after any file, the home contains no agent without the policy and settings, no
// keys without all other files, and no incomplete file. The restore can be repeated.
func TestInterruptedRestore(t *testing.T) {
	backup := backedUp(t)
	killed := errors.New("killed")
	rules := []string{"policy.cedar", "policy.cedarschema", "guardrails.json", "config.toml", "catalog.json"}
	pins := []string{"registry/pins/b.json"}
	var want []file
	for n := 0; want == nil || n < len(want); n++ {
		h := home.At(filepath.Join(t.TempDir(), "home"))
		files, _, err := readFiles(source(backup), h)
		if err != nil {
			t.Fatal(err)
		}
		want = files
		left := n
		done, err := restoreFiles(files, h.Dir(), func(from, to string) error {
			if left--; left < 0 {
				return killed
			}
			return os.Rename(from, to)
		})
		if !errors.Is(err, killed) || done != n {
			t.Fatalf("restoreFiles restored %d files with the error %v before it was killed", done, err)
		}
		there := filesOf(t, h)
		if len(there) != n {
			t.Errorf("after %d files were restored, the home contains %v", n, there)
		}
		for _, f := range files {
			if text, ok := there[filepath.ToSlash(f.rel)]; ok && text != string(f.text) {
				t.Errorf("after %d files were restored, %s contains %q, want its complete content", n, f.rel, text)
			}
		}
		for name := range there {
			missing := func(rule string) bool { _, ok := there[rule]; return !ok }
			if !slices.Contains(rules, name) && slices.ContainsFunc(rules, missing) {
				t.Errorf("after %d files were restored, %s exists, but not all rules: %v", n, name, there)
			}
			if strings.HasPrefix(name, "agents/") && slices.ContainsFunc(pins, missing) {
				t.Errorf("after %d files were restored, %s exists, but not the pins: %v", n, name, there)
			}
			if strings.HasPrefix(name, "keys/") && n < len(files)-1 {
				t.Errorf("after %d files were restored, the keys exist before all other files", n)
			}
		}
		// A killed restore leaves its staging directory.
		part := filepath.Join(h.Dir(), "restore.part", "agents", "shop", "agent.toml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o700), os.WriteFile(part, []byte("[ag"), 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := Restore(t.Context(), source(backup), h, into(statetest.Open(t)))
		if err != nil || s.Files != len(files) || s.Rows < 301 {
			t.Fatalf("repeating the restore: got the summary %+v (error %v), want all files and at least 301 rows",
				s, err)
		}
		if there := filesOf(t, h); len(there) != len(files) {
			t.Errorf("after the complete restore, the home contains %v, want all files", there)
		}
	}
	if len(want) != 11 {
		t.Errorf("the backup has %d files, want 11", len(want))
	}
}

// A backup contains the downloads and pins of registries, because they cannot be downloaded again. It does not
// contain the listings, which can.
func TestTrustComesBack(t *testing.T) {
	h := home.At(filepath.Join(t.TempDir(), "home"))
	if _, err := putFiles(source(backedUp(t)), h); err != nil {
		t.Fatal(err)
	}
	there := filesOf(t, h)
	for _, name := range []string{"registry/given/a", "registry/pins/b.json"} {
		if there[name] != "text of "+name {
			t.Errorf("%s contains %q", name, there[name])
		}
	}
	if _, ok := there["registry/listings/c"]; ok {
		t.Error("a listing was restored")
	}
}

// filesIn returns the files of a backup, as the function read returns them for an empty home.
func filesIn(t *testing.T, backup []byte) []file {
	t.Helper()
	files, _, err := readFiles(source(backup), home.At(filepath.Join(t.TempDir(), "home")))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Restore does not write a file that already has the right content, because its directory may be read-only.
func TestRestoreLeavesWhatIsThere(t *testing.T) {
	backup := backedUp(t)
	h := home.At(filepath.Join(t.TempDir(), "home"))
	for _, f := range filesIn(t, backup) {
		if strings.HasPrefix(f.rel, "keys") {
			file := filepath.Join(h.Dir(), f.rel)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, f.text, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, _, err := readFiles(source(backup), h)
	if err != nil {
		t.Fatal(err)
	}
	done, err := restoreFiles(files, h.Dir(), func(from, to string) error {
		if filepath.Dir(to) == filepath.Join(h.Dir(), "keys") {
			return fs.ErrPermission
		}
		return os.Rename(from, to)
	})
	if err != nil || done != len(files) {
		t.Errorf("restoreFiles restored %d of %d files (error %v), want all", done, len(files), err)
	}
}

// Restore checks that the store is empty before it writes any file.
func TestStoreIsLookedAtFirst(t *testing.T) {
	backup := backedUp(t)
	full := statetest.Open(t)
	made(t, full)
	h := home.At(filepath.Join(t.TempDir(), "home"))
	if s, err := Restore(t.Context(), source(backup), h, into(full)); !errors.Is(err, ErrNotEmpty) || errors.Is(err, ErrHalf) {
		t.Errorf("restoring into a store with records: got the summary %+v and the error %v, want ErrNotEmpty", s, err)
	}
	if there := filesOf(t, h); len(there) != 0 {
		t.Errorf("the refused restore wrote %v", there)
	}
	// Restore does not open the store if the file is not a backup.
	_, err := Restore(t.Context(), source([]byte("hello")), h, func() (state.DB, error) {
		t.Error("the store was opened")
		return full, nil
	})
	if !errors.Is(err, ErrFormat) {
		t.Errorf("got error %v, want ErrFormat", err)
	}
}

// A store with a recorded root key counts as not empty, even without rows: another process may use the store, and
// would write records with another root key into the restored journal.
func TestBegunStoreIsNotEmpty(t *testing.T) {
	backup := backedUp(t)
	begun := statetest.Open(t)
	if _, err := identity.Begin(t.Context(), begun, []string{"other"}, nil); err != nil {
		t.Fatal(err)
	}
	h := home.At(filepath.Join(t.TempDir(), "home"))
	if s, err := Restore(t.Context(), source(backup), h, into(begun)); !errors.Is(err, ErrNotEmpty) || errors.Is(err, ErrHalf) {
		t.Errorf("restoring into a store with a root key: got the summary %+v and the error %v, want ErrNotEmpty",
			s, err)
	}
	if there := filesOf(t, h); len(there) != 0 {
		t.Errorf("the refused restore wrote %v", there)
	}
}

// If the rows cannot be restored, the error reports that files were restored.
func TestHalfARestoreIsReported(t *testing.T) {
	is, err := json.Marshal(About{Format: format, Schema: len(migrations.List())})
	if err != nil {
		t.Fatal(err)
	}
	bad := craft(t, tar.Header{Name: about, Linkname: string(is)}, tar.Header{Name: "home/policy.cedar", Linkname: "// none\n"}, tar.Header{Name: "store/calls/1", Linkname: "[1]\n"})
	h := home.At(filepath.Join(t.TempDir(), "home"))
	s, err := Restore(t.Context(), source(bad), h, into(statetest.Open(t)))
	if !errors.Is(err, ErrHalf) || !errors.Is(err, ErrFormat) || s.Files != 1 || s.Rows != 0 {
		t.Errorf("restoring an invalid row: got the summary %+v and the error %v, want ErrHalf with 1 file", s, err)
	}
	if s, err = Restore(t.Context(), source(backedUp(t)), h, into(statetest.Open(t))); err != nil || s.Files != 11 {
		t.Errorf("repeating the restore with a valid backup: got the summary %+v (error %v), want 11 files", s, err)
	}
}

// rotating is a store whose root key is rotated after each read.
type rotating struct {
	state.DB
	root string
}

func (r rotating) Read(ctx context.Context, do func(state.Tx) error) error {
	err := r.DB.Read(ctx, do)
	if err == nil {
		_, err = identity.NextKeys(r.root)
	}
	if err == nil {
		err = identity.AdoptNext(r.root)
	}
	return err
}

// Write fails if the root key is rotated between reading the rows and reading the keys.
func TestBackupAcrossARotation(t *testing.T) {
	db := statetest.Open(t)
	h, _ := made(t, db)
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, h, rotating{db, h.Root()}, "test"); !errors.Is(err, errRotated) {
		t.Errorf("got error %v, want errRotated", err)
	}
	if _, err := Write(t.Context(), &out, h, db, "test"); err != nil {
		t.Errorf("repeating the backup: %v", err)
	}
}

// Backups of all older schema versions can be restored. Tables that were added later stay empty.
func TestOlderBackups(t *testing.T) {
	steps := migrations.List()
	for schema := 1; schema <= len(steps); schema++ {
		is, err := json.Marshal(About{Format: format, Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		all := []tar.Header{{Name: about, Linkname: string(is)}}
		tables := migrations.Tables(steps[:schema])
		for _, table := range tables {
			all = append(all, tar.Header{Name: "store/" + table.Name + "/1", Linkname: anyRow(table)})
		}
		db := statetest.Open(t)
		put, err := restoreRows(t.Context(), source(craft(t, all...)), db, schema)
		if err != nil || put != int64(len(tables)) {
			t.Errorf("schema %d: restored %d rows, error %v, want %d", schema, put, err, len(tables))
			continue
		}
		err = db.Read(t.Context(), func(tx state.Tx) error {
			for _, table := range migrations.Tables(steps) {
				n, want := int64(0), int64(0)
				if slices.ContainsFunc(tables, func(older migrations.Table) bool { return older.Name == table.Name }) {
					want = 1
				}
				err := tx.Query(`SELECT count(*) FROM `+table.Name, nil, func(r state.Row) error { return r.Scan(&n) })
				if err != nil || n != want {
					t.Errorf("schema %d: got %d rows in %s, error %v, want %d", schema, n, table.Name, err, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// anyRow returns a row with a valid value in each column of a table.
func anyRow(t migrations.Table) string {
	values := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		values[i] = map[string]string{"BIGINT": `7`, "BYTEA": `"AQ=="`, "TEXT": `"x"`}[c.Type]
	}
	return "[" + strings.Join(values, ",") + "]\n"
}
