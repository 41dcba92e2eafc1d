package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Many programs write a file by renaming a new file to its name. If the file has its own mount, this works only if the
// file's folder is private to the program. A link or another folder does not lead anywhere else.
func TestReplaceFile(t *testing.T) {
	needConfined(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, folder := range []string{"private", "home"} {
		if err := os.Mkdir(at(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"file": "old and long", "secret": "secret"} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(code string) string {
		t.Helper()
		stdout, _ := confined(t, Spec{
			Tier: Confined, NoExec: true, Wall: 20 * time.Second, Argv: python(code),
			Mounts: []Mount{
				{Source: at("home"), To: Home, Write: true, Give: true},
				{Source: at("private"), To: "/data", Write: true, Give: true},
				{Source: at("file"), To: "/data/file", Write: true, AsOwner: true},
			},
		})
		return stdout
	}
	content := func() string {
		text, err := os.ReadFile(at("file"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	got := run(`
import os
open('/data/new', 'w').write('new')
os.chdir('/data')
os.rename('new', './file')
print(open('/data/file').read(), sorted(os.listdir('/data')))
`)
	if want := "new ['file']"; got != want || content() != "new" {
		t.Errorf("after a rename: the program printed %q, want %q, and the file contains %q", got, want, content())
	}
	got = run(`
import os
def refused(make, path):
    make()
    try: os.rename(path, '/data/file'); print('renamed', path)
    except OSError as e: print(type(e).__name__)
refused(lambda: os.symlink('../secret', '/data/link'), '/data/link')
refused(lambda: os.mkfifo('/data/pipe'), '/data/pipe')
refused(lambda: os.mkdir('/data/folder'), '/data/folder')
refused(lambda: open('other', 'w').write('other'), 'other')
refused(lambda: None, '/data/none')
refused(lambda: open('/data/holes', 'w').truncate(100 << 20), '/data/holes')
`)
	if want := "OSError\nOSError\nOSError\nOSError\nFileNotFoundError\nOSError"; got != want || content() != "new" {
		t.Errorf("the program printed %q, want %q, and the file contains %q", got, want, content())
	}
}
