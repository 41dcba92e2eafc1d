package client

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// scene is a fake machine with one client and its file.
type scene struct {
	system System
	client *Client
	name   string
	entry  Entry
	file   string
}

// stage sets up the fake machine that the first lines of a golden file describe.
func stage(t *testing.T, head string) *scene {
	t.Helper()
	home := t.TempDir()
	env := map[string]string{}
	sc := &scene{name: "report-builder", system: System{Home: home, Ambit: filepath.Join(home, ".ambit"), Getenv: func(k string) string { return env[k] }}}
	ambitHome := ""
	for line := range strings.Lines(head) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch key {
		case "client":
			sc.client = Named(value)
		case "os":
			sc.system.OS = value
		case "name":
			sc.name = value
		case "home":
			ambitHome = value
		case "folder":
			if err := os.MkdirAll(filepath.Join(home, filepath.FromSlash(value)), 0o755); err != nil {
				t.Fatal(err)
			}
		case "env":
			k, v, _ := strings.Cut(value, "=")
			env[k] = filepath.FromSlash(strings.ReplaceAll(v, "$HOME", home))
		}
	}
	if sc.client == nil || sc.system.OS == "" {
		t.Fatalf("the head does not name a client and an operating system")
	}
	command := "/usr/local/bin/ambit"
	if sc.system.OS == "windows" {
		command = `C:\Program Files\ambit\ambit.exe`
	}
	sc.entry = NewEntry(command, sc.name, ambitHome)
	sc.file, _ = sc.client.File(sc.system, sc.name)
	return sc
}

func (sc *scene) put(t *testing.T, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(sc.file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sc.file, text, 0o640); err != nil {
		t.Fatal(err)
	}
}

func (sc *scene) install(t *testing.T) *Change {
	t.Helper()
	l := sc.ledger(t)
	defer l.Close()
	ch, err := sc.client.Plan(sc.system, sc.name, sc.entry, l.Of(sc.name, sc.client.Name))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Write(sc.name, ch); err != nil {
		t.Fatal(err)
	}
	return ch
}

func (sc *scene) ledger(t *testing.T) *Ledger {
	t.Helper()
	l, err := OpenLedger(sc.system.Ambit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (sc *scene) uninstall(t *testing.T) {
	t.Helper()
	l := sc.ledger(t)
	defer l.Close()
	w := l.Of(sc.name, sc.client.Name)
	ch, err := sc.client.PlanRemoval(w, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(sc.name, ch, w); err != nil {
		t.Fatal(err)
	}
}

func (sc *scene) read(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(sc.file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// everything lists the files in the user's home, except ambit's own files.
func (sc *scene) everything(t *testing.T) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(sc.system.Home, func(path string, e fs.DirEntry, err error) error {
		if base := filepath.Base(path); base == "installs.json" || base == "installs.mutex" || base == "backups" {
			return nil
		}
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// TestGolden compares each client's file after an installation with a golden file, for each operating
// system. Uninstalling must restore the original file byte for byte.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sc := stage(t, string(ar.Comment))
			seen[sc.client.Name+" "+sc.system.OS] = true
			parts := map[string][]byte{}
			for _, f := range ar.Files {
				parts[f.Name] = f.Data
			}
			if original, ok := parts["original"]; ok {
				sc.put(t, original)
			}
			if err := os.MkdirAll(sc.system.Ambit, 0o700); err != nil {
				t.Fatal(err)
			}
			before := sc.everything(t)
			ch := sc.install(t)
			if strings.Contains(ch.Diff, "canary") {
				t.Errorf("the diff shows lines that ambit did not write:\n%s", ch.Diff)
			}
			rel, err := filepath.Rel(sc.system.Home, sc.file)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]byte{"file": []byte(filepath.ToSlash(rel) + "\n"), "installed": sc.read(t), "diff": []byte(ch.Diff)}
			if *update {
				out := &txtar.Archive{Comment: ar.Comment}
				for _, name := range []string{"original", "file", "installed", "diff"} {
					data, ok := got[name]
					if name == "original" {
						data, ok = parts[name]
					}
					if ok {
						out.Files = append(out.Files, txtar.File{Name: name, Data: data})
					}
				}
				if err := os.WriteFile(path, txtar.Format(out), 0o644); err != nil {
					t.Fatal(err)
				}
			} else {
				for name, text := range got {
					if !bytes.Equal(text, parts[name]) {
						t.Errorf("%s:\n%s\nwant:\n%s", name, text, parts[name])
					}
				}
			}
			if again := sc.install(t); again.Changes() {
				t.Errorf("installing twice changes the file again:\n%s", again.Diff)
			}
			sc.uninstall(t)
			if original, ok := parts["original"]; ok && !bytes.Equal(sc.read(t), original) {
				t.Errorf("after uninstalling:\n%s", sc.read(t))
			}
			if after := sc.everything(t); after != before {
				t.Errorf("files before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
	for _, c := range Clients {
		for _, system := range []string{"linux", "darwin", "windows"} {
			if c.Name != Web && !seen[c.Name+" "+system] {
				t.Errorf("no golden file shows %s on %s", c.Name, system)
			}
		}
	}
}

// TestEditsUndoThemselves edits every golden original with different line endings and with a byte
// order mark. Removing the entry must undo adding it, without a backup.
func TestEditsUndoThemselves(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	variants := map[string]func(string) string{
		"unchanged":        func(s string) string { return s },
		"CRLF":             func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"byte order mark":  func(s string) string { return byteOrderMark + s },
		"no final newline": func(s string) string { return strings.TrimSuffix(s, "\n") },
	}
	edits := 0
	for _, path := range files {
		ar, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sc := stage(t, string(ar.Comment))
		for _, f := range ar.Files {
			if f.Name != "original" {
				continue
			}
			for variant, change := range variants {
				text := []byte(change(string(f.Data)))
				key := sc.client.Key(sc.name)
				added, err := sc.client.editor.set(text, key, sc.entry)
				if err != nil {
					t.Errorf("%s, %s: %v", path, variant, err)
					continue
				}
				if variant == "CRLF" && strings.Count(string(added.text), "\n") != strings.Count(string(added.text), "\r\n") {
					t.Errorf("%s: mixed line ends:\n%q", path, added.text)
				}
				if got, err := sc.client.editor.get(added.text, key); err != nil || !same(got, sc.client.editor.valueOf(sc.entry)) {
					t.Errorf("%s, %s: the entry reads as %v, %v", path, variant, got, err)
				}
				removed, err := sc.client.editor.remove(added.text, key, added.made)
				if err != nil {
					t.Errorf("%s, %s: %v", path, variant, err)
					continue
				}
				if want := text; !bytes.Equal(squeeze(removed.text), squeeze(want)) {
					t.Errorf("%s, %s:\n%q\nwant:\n%q", path, variant, removed.text, want)
				}
				edits++
			}
		}
	}
	if edits < 60 {
		t.Errorf("only %d edits were tested, want at least 60", edits)
	}
}

// squeeze normalizes the formatting of empty objects and of the end of the file. Without a backup,
// an edit cannot restore this formatting.
func squeeze(text []byte) []byte {
	for _, empty := range []string{"{\n    }", "{\r\n    }"} {
		text = bytes.ReplaceAll(text, []byte(empty), []byte("{}"))
	}
	return bytes.TrimRight(text, "\r\n")
}
