package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// made creates a home with a root key, an agent and a policy, and a journal with 300 records.
func made(t *testing.T, db state.DB) (home.Home, *identity.Keys) {
	t.Helper()
	h := home.At(filepath.Join(t.TempDir(), "home"))
	keys, err := identity.OpenKeys(h.Root())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"agents/shop/agent.toml": "[agent]\n", "policy.cedar": "// none\n", "packages/big": "not kept", "run/x.key": "not kept"} {
		file := filepath.Join(h.Dir(), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := journal.New(db, keys.Signer(), "ambit")
	for range 300 {
		if err := j.Note(&journal.Record{Call: "c", Agent: "shop", Principal: "ada", Decision: journal.Allow}); err != nil {
			t.Fatal(err)
		}
	}
	err = db.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(`INSERT INTO calls (id, agent, state, owner, sealed) VALUES ('one', 'shop', 'sending', 'DEAD', $1)`, []byte{0, 1, 255})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, keys
}

func source(b []byte) Source {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

// putFiles restores only the files of a backup, not the rows.
func putFiles(src Source, h home.Home) (Summary, error) {
	files, s, err := readFiles(src, h)
	if err == nil {
		s.Files, err = restoreFiles(files, h.Dir(), os.Rename)
	}
	return s, err
}

// A backup of either engine can be restored into either engine.
func TestRoundTrip(t *testing.T) {
	statetest.Places(t, func(t *testing.T, from string) {
		db := statetest.At(t, from)
		h, _ := made(t, db)
		var out bytes.Buffer
		wrote, err := Write(t.Context(), &out, h, db, "test")
		if err != nil || wrote.Rows < 301 || wrote.Files != 3 {
			t.Fatalf("writing the backup: got the summary %+v (error %v), want at least 301 rows and 3 files",
				wrote, err)
		}
		statetest.Places(t, func(t *testing.T, to string) {
			target := home.At(filepath.Join(t.TempDir(), "home"))
			files, err := putFiles(source(out.Bytes()), target)
			if err != nil || files.Files != 3 {
				t.Fatalf("restoring the files: got the summary %+v (error %v), want 3 files", files, err)
			}
			db := statetest.At(t, to)
			n, err := restoreRows(t.Context(), source(out.Bytes()), db, len(migrations.List()))
			if err != nil || n != wrote.Rows {
				t.Fatalf("restored %d of %d rows (error %v), want all", n, wrote.Rows, err)
			}
			keys, err := identity.OpenKeys(target.Root())
			if err != nil {
				t.Fatal(err)
			}
			report, err := journal.New(db, keys.Signer(), "ambit").Verify(t.Context(), journal.Check{})
			if err != nil || !report.OK || report.Records < 300 {
				t.Errorf("verifying the restored journal: got the report %+v (error %v), want an intact journal of at least 300 records",
					report, err)
			}
			var sealed, mac []byte
			err = db.Read(t.Context(), func(tx state.Tx) error {
				return tx.Query(`SELECT sealed, mac FROM calls WHERE id = 'one' AND settled IS NULL AND idem IS NULL`, nil, func(r state.Row) error { return r.Scan(&sealed, &mac) })
			})
			if err != nil || !bytes.Equal(sealed, []byte{0, 1, 255}) || mac != nil {
				t.Errorf("the restored call has sealed = %v and mac = %v (error %v), want the sealed bytes and no mac",
					sealed, mac, err)
			}
			for name, there := range map[string]bool{"agents/shop/agent.toml": true, "packages/big": false, "run/x.key": false} {
				if _, err := os.Stat(filepath.Join(target.Dir(), name)); (err == nil) != there {
					t.Errorf("%s: got error %v, want the file to exist: %t", name, err, there)
				}
			}
		})
	})
}

// keep inserts a row with the given number of sealed bytes.
func keep(t *testing.T, db state.DB, size int) {
	t.Helper()
	err := db.Write(t.Context(), func(tx state.Tx) error {
		_, err := tx.Exec(`INSERT INTO calls (id, sealed) VALUES ('large', $1)`, bytes.Repeat([]byte("seal"), size/4))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A row that is many times as large as a page is restored completely.
func TestRestoreLargeRow(t *testing.T) {
	const size = 8 << 20
	db := statetest.Open(t)
	h, _ := made(t, db)
	keep(t, db, size)
	var out bytes.Buffer
	wrote, err := Write(t.Context(), &out, h, db, "test")
	if err != nil {
		t.Fatal(err)
	}
	target := statetest.Open(t)
	if n, err := restoreRows(t.Context(), source(out.Bytes()), target, len(migrations.List())); err != nil || n != wrote.Rows {
		t.Fatalf("restored %d of %d rows (error %v), want all", n, wrote.Rows, err)
	}
	var back int64
	err = target.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT length(sealed) FROM calls WHERE id = 'large'`, nil, func(r state.Row) error { return r.Scan(&back) })
	})
	if err != nil || back != size {
		t.Errorf("the restored row has %d bytes (error %v), want %d", back, err, size)
	}
}

// Write refuses a row that Restore would refuse. A row of the largest accepted size can be restored.
func TestRowsAreBounded(t *testing.T) {
	whole := maxRow
	t.Cleanup(func() { maxRow = whole })
	db := statetest.Open(t)
	h, _ := made(t, db)
	keep(t, db, 2*pageSize)
	try := func(most int) ([]byte, error) {
		maxRow = most
		var out bytes.Buffer
		_, err := Write(t.Context(), &out, h, db, "test")
		return out.Bytes(), err
	}
	_, err := try(pageSize)
	if err == nil || !strings.Contains(err.Error(), "table calls: an encoded row has ") || !strings.Contains(err.Error(), "a restore accepts only rows smaller than 1048576 bytes") {
		t.Fatalf("got error %v, want one about the size of the row", err)
	}
	var size int
	if _, err := fmt.Sscanf(err.Error(), "table calls: an encoded row has %d bytes", &size); err != nil {
		t.Fatal(err)
	}
	if _, err := try(size); err == nil {
		t.Error("Write accepted a row that is one byte too large")
	}
	least, err := try(size + 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restoreRows(t.Context(), source(least), statetest.Open(t), len(migrations.List())); err != nil {
		t.Errorf("restoring the largest accepted row failed: %v", err)
	}
	maxRow = pageSize
	if _, err := restoreRows(t.Context(), source(least), statetest.Open(t), len(migrations.List())); !errors.Is(err, ErrFormat) {
		t.Errorf("restoring a page that is too large: got error %v, want ErrFormat", err)
	}
}

// A restored file stays executable for its owner, and other users get no permissions. A backup of an older
// version does not record whether a file was executable. Links are listed and not followed.
func TestModes(t *testing.T) {
	db := statetest.Open(t)
	h, _ := made(t, db)
	for name, mode := range map[string]fs.FileMode{"entry": 0o755, "text": 0o666} {
		file := filepath.Join(h.Dir(), "agents", "shop", name)
		if err := errors.Join(os.WriteFile(file, []byte(name), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(h.Root(), filepath.Join(h.Dir(), "agents", "shop", "link")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	wrote, err := Write(t.Context(), &out, h, db, "test")
	if err != nil || wrote.Files != 5 || !slices.Equal(wrote.LeftOut, []string{filepath.Join("agents", "shop", "link")}) {
		t.Fatalf("got the summary %+v (error %v), want 5 files and the link as left out", wrote, err)
	}
	is, err := json.Marshal(wrote.About)
	if err != nil {
		t.Fatal(err)
	}
	older := craft(t, tar.Header{Name: about, Linkname: string(is)}, tar.Header{Name: "home/agents/shop/entry", Linkname: "entry"})
	for name, tt := range map[string]struct {
		backup []byte
		file   string
		want   fs.FileMode
	}{
		"run":   {out.Bytes(), "agents/shop/entry", 0o700},
		"read":  {out.Bytes(), "agents/shop/text", 0o600},
		"key":   {out.Bytes(), "keys/root", 0o600},
		"older": {older, "agents/shop/entry", 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			target := home.At(filepath.Join(t.TempDir(), "home"))
			if _, err := putFiles(source(tt.backup), target); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(filepath.Join(target.Dir(), tt.file)); err != nil || info.Mode() != tt.want {
				t.Errorf("the restored file has the mode %v (error %v), want %v", info.Mode(), err, tt.want)
			}
			if _, err := os.Lstat(filepath.Join(target.Dir(), "agents", "shop", "link")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the link was restored: %v", err)
			}
		})
	}
}

func TestRestoreOverwritesNothing(t *testing.T) {
	db := statetest.Open(t)
	h, _ := made(t, db)
	var out bytes.Buffer
	if _, err := Write(t.Context(), &out, h, db, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreRows(t.Context(), source(out.Bytes()), db, len(migrations.List())); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("restoring into a store with records: got error %v, want ErrNotEmpty", err)
	}
	other := home.At(t.TempDir())
	policy := filepath.Join(other.Dir(), "policy.cedar")
	if err := os.WriteFile(policy, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := putFiles(source(out.Bytes()), other); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("restoring into a home with another policy: got error %v, want ErrNotEmpty", err)
	}
	if entries, _ := os.ReadDir(other.Dir()); len(entries) != 1 {
		t.Error("some files were restored")
	}
}

func TestSealedBackups(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		lock Lock
		key  Key
		ok   bool
	}{
		"unencrypted":      {Lock{}, Key{}, true},
		"passphrase":       {Lock{Passphrase: "correct horse"}, Key{Passphrase: "correct horse"}, true},
		"wrong passphrase": {Lock{Passphrase: "correct horse"}, Key{Passphrase: "battery"}, false},
		"no passphrase":    {Lock{Passphrase: "correct horse"}, Key{}, false},
		"recipient":        {Lock{Recipients: []string{id.Recipient().String()}}, Key{Identities: id.String()}, true},
		"wrong kind":       {Lock{Recipients: []string{id.Recipient().String()}}, Key{Passphrase: "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := tt.lock.Seal(&out)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, "what is kept"); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if name != "unencrypted" && strings.Contains(out.String(), "kept") {
				t.Error("the backup is not encrypted")
			}
			r, err := tt.key.Open(&out)
			if !tt.ok {
				if !errors.Is(err, ErrSealed) {
					t.Errorf("got error %v, want ErrSealed", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != "what is kept" {
				t.Errorf("got the content %q (error %v), want the text that was sealed", got, err)
			}
		})
	}
}

// craft returns a backup with these entries. The field Linkname contains the content of a file or the target of
// a link.
func craft(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, h := range entries {
		text := h.Linkname
		h.Linkname = ""
		if h.Typeflag == tar.TypeSymlink {
			h.Linkname, text = text, ""
		}
		h.Size, h.Mode = int64(len(text)), 0o600
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A hostile backup cannot write outside the home, and can write only files that Write produces.
func TestHostileBackups(t *testing.T) {
	db := statetest.Open(t)
	h, _ := made(t, db)
	var whole bytes.Buffer
	if _, err := Write(t.Context(), &whole, h, db, "test"); err != nil {
		t.Fatal(err)
	}
	good := bytes.Clone(whole.Bytes())
	zip, err := gzip.NewReader(&whole)
	if err != nil {
		t.Fatal(err)
	}
	in := tar.NewReader(zip)
	if _, err := in.Next(); err != nil {
		t.Fatal(err)
	}
	is, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	head := tar.Header{Name: about, Linkname: string(is)}
	for name, entry := range map[string]tar.Header{
		"parent":    {Name: "home/../../evil", Linkname: "x"},
		"inside":    {Name: "home/agents/../../evil", Linkname: "x"},
		"absolute":  {Name: "/etc/evil", Linkname: "x"},
		"backslash": {Name: `home/agents\..\evil`, Linkname: "x"},
		"other":     {Name: "home/state.db", Linkname: "x"},
		"listing":   {Name: "home/registry/listings/x", Linkname: "x"},
		"registry":  {Name: "home/registry", Linkname: "x"},
		"longer":    {Name: "home/registry/givenness", Linkname: "x"},
		"link":      {Name: "home/agents/x", Linkname: "/etc", Typeflag: tar.TypeSymlink},
	} {
		t.Run(name, func(t *testing.T) {
			target := home.At(filepath.Join(t.TempDir(), "in", "home"))
			if _, err := putFiles(source(craft(t, head, entry)), target); !errors.Is(err, ErrFormat) {
				t.Errorf("got error %v, want ErrFormat", err)
			}
			if entries, _ := os.ReadDir(filepath.Dir(filepath.Dir(target.Dir()))); len(entries) != 0 {
				t.Error("the refused backup wrote files")
			}
		})
	}
	for name, raw := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "no head": craft(t, tar.Header{Name: "home/policy.cedar", Linkname: "x"}),
		"newer":   craft(t, tar.Header{Name: about, Linkname: `{"format":2}`}),
		"schema":  craft(t, tar.Header{Name: about, Linkname: `{"format":1,"schema":9999,"version":"9"}`}),
		"before":  craft(t, tar.Header{Name: about, Linkname: `{"format":1,"schema":0,"version":"0"}`}),
		"table":   craft(t, head, tar.Header{Name: "store/schema_version/1", Linkname: "[1]\n"}),
		"row":     craft(t, head, tar.Header{Name: "store/calls/1", Linkname: "[1]\n"}),
		"cut off": good[:len(good)/2],
		"changed": changed(good, len(good)-8), // change a bit of the checksum
		"more":    slices.Concat(good, craft(t, head)),
	} {
		t.Run(name, func(t *testing.T) {
			target := home.At(filepath.Join(t.TempDir(), "home"))
			if _, err := putFiles(source(raw), target); !errors.Is(err, ErrFormat) && name != "table" && name != "row" {
				t.Errorf("restoring the files: got error %v, want ErrFormat", err)
			}
			empty := statetest.Open(t)
			if _, err := restoreRows(t.Context(), source(raw), empty, len(migrations.List())); !errors.Is(err, ErrFormat) {
				t.Errorf("restoring the rows: got error %v, want ErrFormat", err)
			}
			if n, err := logs(t, empty); n != 1 || err != nil {
				t.Errorf("the store was changed: it has %d logs (error %v), want 1", n, err)
			}
		})
	}
}

func changed(backup []byte, at int) []byte {
	backup = bytes.Clone(backup)
	backup[at] ^= 1
	return backup
}

func logs(t *testing.T, db state.DB) (n int64, err error) {
	err = db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT count(*) FROM logs`, nil, func(r state.Row) error { return r.Scan(&n) })
	})
	return n, err
}

// migrations.Tables lists every column of a store, so a backup contains all of them.
func TestTablesAreTheSchema(t *testing.T) {
	db := statetest.Open(t)
	known := map[string]bool{"schema_version.version": true}
	for _, table := range migrations.Tables(migrations.List()) {
		for _, c := range table.Columns {
			known[table.Name+"."+c.Name] = true
		}
	}
	found := 0
	err := db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`, nil, func(r state.Row) error {
			var name string
			if err := r.Scan(&name); err != nil {
				return err
			}
			found++
			if !known[name] {
				t.Errorf("migrations.Tables lacks the column %s", name)
			}
			return nil
		})
	})
	if err != nil || found != len(known) {
		t.Errorf("the store has %d columns, but migrations.Tables lists %d (error %v)", found, len(known), err)
	}
}
