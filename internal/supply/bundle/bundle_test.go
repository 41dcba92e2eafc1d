package bundle

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/unzip"
)

const manifestText = `{
  "name": "Small Bundle", "kind": "code-bundle",
  "system_prompt": "You are a small agent that exists so that a bundle can be tested with it.",
  "tools": [{"name": "echo", "description": "Say it again."}],
  "entrypoint": {"path": "main.mjs"}, "runtime": {"kind": "node"}, "mcp": {"mode": "wrap"},
  "allowed_hosts": ["api.example.com"], "example_prompts": ["Say it."]
}`

// entry is one entry of an archive that a test creates.
type entry struct {
	name, body, link string
	kind             byte
	mode             int64
}

func good() []entry {
	return []entry{{name: ManifestName, body: manifestText}, {name: "main.mjs", body: "export const handler = (x) => x;\n"}}
}

func tarOf(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.body)), Typeflag: e.kind, Linkname: e.link, Mode: 0o644 | e.mode}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.body == "" {
			h.Method = zip.Store // compressing each of several thousand empty entries is slow
		}
		mode := fs.FileMode(0o644 | e.mode)
		if e.kind == tar.TypeSymlink {
			mode |= fs.ModeSymlink
		}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(e.body + e.link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func opened(t testing.TB, data []byte) *Bundle {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func codes(b *Bundle) (all []string) {
	for _, p := range b.Problems {
		all = append(all, p.Code)
	}
	return all
}

// A folder has the same digest as its tar and zip archives. Packing it twice results in equal
// archives.
func TestOneDigest(t *testing.T) {
	dir := t.TempDir()
	for _, e := range good() {
		if err := os.WriteFile(filepath.Join(dir, e.name), []byte(e.body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".git"), 0o700), os.WriteFile(filepath.Join(dir, ".env"), []byte("X=1"), 0o600)); err != nil {
		t.Fatal(err)
	}
	folder, err := Open(dir)
	if err != nil || len(folder.Problems) > 0 {
		t.Fatal(err, folder.Problems)
	}
	if !slices.Equal(folder.LeftOut, []string{".env", ".git"}) {
		t.Errorf("LeftOut is %q, want .env and .git", folder.LeftOut)
	}
	var one, two bytes.Buffer
	if err := errors.Join(folder.Tree.Pack(&one), folder.Tree.Pack(&two)); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Fatal("two archives of the same folder differ", err)
	}
	for name, data := range map[string][]byte{"packed": one.Bytes(), "tar": tarOf(t, good()), "zip": zipOf(t, good())} {
		b := opened(t, data)
		if len(b.Problems) > 0 || b.Tree.Digest() != folder.Tree.Digest() {
			t.Errorf("%s: digest %s, want %s; problems %v", name, b.Tree.Digest(), folder.Tree.Digest(), b.Problems)
		}
	}
	executable := good()
	executable[1].mode = 0o111
	other := good()
	other[1].body += " "
	renamed := append(good(), entry{name: "more.txt"})
	for _, entries := range [][]entry{executable, other, renamed} {
		if b := opened(t, tarOf(t, entries)); b.Tree.Digest() == folder.Tree.Digest() {
			t.Errorf("the changed bundle %v has the same digest as the original", entries)
		}
	}
}

// A forbidden entry in an archive is reported and never written outside the folder of the bundle. The
// other entries are still checked.
func TestHostileArchives(t *testing.T) {
	for _, tt := range []struct {
		name  string
		entry entry
		code  string
	}{
		{"parent folder", entry{name: "../evil", body: "x"}, "CB002"},
		{"parent folder through a subfolder", entry{name: "a/../../evil", body: "x"}, "CB002"},
		{"dots that stay inside", entry{name: "a/../b", body: "x"}, "CB002"},
		{"absolute", entry{name: "/etc/evil", body: "x"}, "CB002"},
		{"backslash", entry{name: `..\evil`, body: "x"}, "CB002"},
		{"drive letter", entry{name: "C:evil", body: "x"}, "CB002"},
		{"control character", entry{name: "a\x1b[2Jb", body: "x"}, "CB002"},
		{"right-to-left override", entry{name: "a\u202egpj.exe", body: "x"}, "CB002"},
		{"invisible character", entry{name: "a\u3164.txt", body: "x"}, "CB002"},
		{"invalid UTF-8", entry{name: "a\xff", body: "x"}, "CB002"},
		{"trailing dot", entry{name: "a.", body: "x"}, "CB002"},
		{"duplicate name", entry{name: "main.mjs", body: "x"}, "CB005"},
		{"duplicate name in capitals", entry{name: "MAIN.mjs", body: "x"}, "CB005"},
		{"file used as a folder", entry{name: "main.mjs/x", body: "x"}, "CB005"},
		{"symbolic link", entry{name: "l", kind: tar.TypeSymlink, link: "/etc/passwd"}, "CB003"},
		{"symbolic link named like the manifest", entry{name: "sub/findagent.json", kind: tar.TypeSymlink, link: "../../x"}, "CB003"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for kind, data := range map[string][]byte{"tar": tarOf(t, append(good(), tt.entry)), "zip": zipOf(t, append(good(), tt.entry))} {
				b := opened(t, data)
				if !slices.Equal(codes(b), []string{tt.code}) {
					t.Errorf("%s: got %v, want only %s", kind, b.Problems, tt.code)
				}
				if len(b.Tree) != 2 || b.Agent() == nil {
					t.Errorf("%s: the bundle has %d files, want the 2 valid ones and an agent", kind, len(b.Tree))
				}
				dir := t.TempDir()
				if err := b.Tree.Write(dir); err != nil {
					t.Error(err)
				}
				if _, err := os.Lstat(filepath.Join(dir, "..", "evil")); err == nil {
					t.Errorf("%s: a file was written outside the folder", kind)
				}
			}
		})
	}
	for name, e := range map[string]entry{
		"hard link": {name: "l", kind: tar.TypeLink, link: "main.mjs"}, "device": {name: "d", kind: tar.TypeChar}, "pipe": {name: "p", kind: tar.TypeFifo},
	} {
		if b := opened(t, tarOf(t, append(good(), e))); !slices.Equal(codes(b), []string{"CB003"}) {
			t.Errorf("%s: got %v, want CB003", name, b.Problems)
		}
	}
}

// Open reports all problems of a bundle together, errors before warnings, and never prints a secret.
func TestEveryProblem(t *testing.T) {
	b := opened(t, tarOf(t, []entry{
		{name: ManifestName, body: strings.Replace(manifestText, "main.mjs", "gone.mjs", 1)},
		{name: "../up", body: "x"},
		{name: "l", kind: tar.TypeSymlink, link: "x"},
		{name: "code.js", body: "\n\nfetch('https://evil.example.net/');fetch('https://api.example.com/')"},
		{name: "keys.txt", body: "x\ny\n-----BEGIN RSA " + "PRIVATE KEY-----\n" + strings.Repeat("MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MhgwMbRvI0MBZhpC\n", 4) + "-----END RSA " + "PRIVATE KEY-----\n"},
		{name: "lib.so", body: "\x7fELF\x02\x01\x01"},
	}))
	got := codes(b)
	for _, want := range []string{"CB002", "CB003", "CB007", "CB010", "CB011", "CB012"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %q", want, got)
		}
	}
	for _, p := range b.Problems {
		if p.Code == "CB011" && (p.Path != "code.js" || p.Line != 3) || p.Code == "CB010" && p.Line != 3 {
			t.Errorf("%s has the wrong location %s:%d", p.Code, p.Path, p.Line)
		}
		if strings.Contains(p.Message, "MIIEpAIB") {
			t.Error("the output contains the secret")
		}
	}
	if i := slices.IndexFunc(b.Problems, func(p Problem) bool { return p.Severity != diag.Error }); i < 0 || slices.ContainsFunc(b.Problems[i:], func(p Problem) bool { return p.Severity == diag.Error }) {
		t.Error("a warning comes before an error")
	}
}

func TestBounds(t *testing.T) {
	many, wrong := good(), good()
	for i := range maxFiles {
		many = append(many, entry{name: fmt.Sprintf("f/%d", i)})
		wrong = append(wrong, entry{name: fmt.Sprintf("../%d", i)})
	}
	for name, tt := range map[string][]entry{
		"a zip bomb":             append(good(), entry{name: "zeros", body: strings.Repeat("\x00", 16<<20)}),
		"too many files":         many,
		"too many invalid paths": wrong,
	} {
		for kind, data := range map[string][]byte{"tar": tarOf(t, tt), "zip": zipOf(t, tt)} {
			b := opened(t, data)
			if !slices.Contains(codes(b), "CB004") || len(b.Problems) > maxProblems+1 {
				t.Errorf("%s as %s: got %d problems %v, want CB004 among them", name, kind, len(b.Problems), codes(b))
			}
		}
	}
	// This zip consists of directory entries, but its end record claims that there are none. ambit must not
	// read the directory.
	swollen := bytes.Repeat(append([]byte("PK\x01\x02"), make([]byte, 42)...), 2<<16)
	b := &Bundle{}
	b.readZip(append(append(swollen, "PK\x05\x06"...), make([]byte, 18)...))
	if len(b.Problems) != 1 || !strings.Contains(b.Problems[0].Message, unzip.ErrTooMany.Error()) {
		t.Errorf("an oversized directory: got %v, want %q", b.Problems, unzip.ErrTooMany)
	}
	b = &Bundle{}
	in := newIntake(b)
	zeros := func(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }
	if !in.take("large", false, zeros(maxFile+1)) || len(b.Tree) > 0 || !slices.Equal(codes(b), []string{"CB004"}) {
		t.Errorf("a file that is too large: got %v, want CB004", b.Problems)
	}
	for i := range 3 {
		if !in.take(fmt.Sprint(i), false, zeros(maxFile)) {
			t.Errorf("file %d: %v", i, b.Problems)
		}
	}
	if in.take("last", false, zeros(1)) || len(b.Tree) != 3 || len(b.Problems) != 2 {
		t.Errorf("files that are too large in total: got %d files, want 3; problems %v", len(b.Tree), b.Problems)
	}
}

// zeroReader returns zeros without end.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestDamagedArchives(t *testing.T) {
	whole := tarOf(t, good())
	zipped := zipOf(t, good())
	for name, data := range map[string][]byte{
		"an empty file":            {},
		"text":                     []byte("hello"),
		"a truncated tar":          whole[:len(whole)-20],
		"data after the archive":   append(slices.Clone(whole), "more"...),
		"two archives in one file": append(slices.Clone(whole), whole...),
		"a truncated zip":          zipped[:len(zipped)-30],
		"a gzip of text":           gzipOf(t, "this is no tar, and is long enough to be read as a header of one"+strings.Repeat(".", 1024)),
		"data after the tar's end": gzipOf(t, untar(t, whole)+strings.Repeat("\x00", 4096)+"tail"),
	} {
		if b := opened(t, data); !slices.Contains(codes(b), "CB001") {
			t.Errorf("%s: got %v, want CB001", name, b.Problems)
		}
	}
}

func gzipOf(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func untar(t *testing.T, data []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(z); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestManifestRules(t *testing.T) {
	for name, tt := range map[string]struct{ text, code string }{
		"no manifest":         {"", "CB006"},
		"another kind":        {strings.Replace(manifestText, "code-bundle", "mcp-tool", 1), ""},
		"a reserved variable": {strings.Replace(manifestText, `"allowed_hosts"`, `"env": [{"name": "NODE_OPTIONS"}], "allowed_hosts"`, 1), "CB013"},
		"a reserved slot":     {strings.Replace(manifestText, `"allowed_hosts"`, `"credential_slots": [{"ref": "x", "label": "X", "env": "LD_PRELOAD", "allowed_hosts": ["api.example.com"]}], "allowed_hosts"`, 1), "CB013"},
		"a missing ui":        {strings.Replace(manifestText, `"allowed_hosts"`, `"ui": "ui", "allowed_hosts"`, 1), "CB007"},
		"skills without text": {strings.Replace(manifestText, `"allowed_hosts"`, `"skills": [{"id": "x", "name": "x"}], "allowed_hosts"`, 1), "CB015"},
	} {
		entries := good()[1:]
		if tt.text != "" {
			entries = append(entries, entry{name: ManifestName, body: tt.text})
		}
		b := opened(t, tarOf(t, entries))
		if b.Errors() == 0 || tt.code != "" && !slices.Contains(codes(b), tt.code) {
			t.Errorf("%s: got %v, want %s", name, b.Problems, tt.code)
		}
	}
}

// A symbolic link in a folder is reported and not followed, even if its target is in the same folder.
func TestFolderLinks(t *testing.T) {
	dir := t.TempDir()
	for _, e := range good() {
		if err := os.WriteFile(filepath.Join(dir, e.name), []byte(e.body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("/etc/hosts", filepath.Join(dir, "hosts")), os.Symlink("main.mjs", filepath.Join(dir, "same.mjs"))); err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir)
	if err != nil || !slices.Equal(codes(b), []string{"CB003", "CB003"}) || b.Tree.Find("hosts") != nil {
		t.Error(err, b.Problems)
	}
}

func TestTypeScript(t *testing.T) {
	text := strings.Replace(manifestText, "main.mjs", "src/agent.ts", 1)
	write := func(t *testing.T, files map[string]string) string {
		dir := t.TempDir()
		for name, body := range files {
			file := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(body), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	files := map[string]string{
		ManifestName: text, "src/agent.ts": "import { twice } from './twice';\nimport fs from 'node:fs';\nexport const handler = (x: { n: number }): number => twice(x.n) + (fs ? 0 : 1);\n",
		"src/twice.ts": "export function twice(n: number): number { return 2 * n; }\n",
	}
	b, err := Open(write(t, files))
	if err != nil || len(b.Problems) > 0 {
		t.Fatal(err, b.Problems)
	}
	built := b.Tree.Find("src/agent.ts.mjs")
	if built == nil || !strings.Contains(string(built.Data), "2 * n") || strings.Contains(string(built.Data), ": number") {
		t.Fatal("src/agent.ts.mjs is missing or not compiled")
	}
	again, err := Open(write(t, files))
	if err != nil || again.Tree.Digest() != b.Tree.Digest() {
		t.Error("two builds of the same source differ", err)
	}
	var packed bytes.Buffer
	if err := b.Tree.Pack(&packed); err != nil {
		t.Fatal(err)
	}
	if p := opened(t, packed.Bytes()); len(p.Problems) > 0 || p.Tree.Digest() != b.Tree.Digest() {
		t.Error(p.Problems)
	}

	var sources []entry
	for name, body := range files {
		sources = append(sources, entry{name: name, body: body})
	}
	if p := opened(t, tarOf(t, sources)); !slices.Equal(codes(p), []string{"CB008"}) {
		t.Errorf("an archive without the built file: got %v, want CB008", p.Problems)
	}
	swapped := append(sources, entry{name: "src/agent.ts.mjs", body: "export const handler = () => 'another';\n"})
	if p := opened(t, tarOf(t, swapped)); !slices.Equal(codes(p), []string{"CB009"}) {
		t.Errorf("an archive with another file in place of the built file: got %v, want CB009", p.Problems)
	}

	outside := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(outside, []byte(`{"outside": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{
		"a syntax error":                                        "export const handler = (",
		"an import that is missing":                             "import x from './gone'; export const handler = x;",
		"an import outside the bundle":                          "import x from '" + outside + "'; export const handler = x;",
		"an import of an npm package that is not in the bundle": "import x from 'left-pad-of-no-author'; export const handler = x;",
	} {
		files["src/agent.ts"] = source
		p, err := Open(write(t, files))
		if err != nil || !slices.Contains(codes(p), "CB008") || p.Tree.Find("src/agent.ts.mjs") != nil {
			t.Errorf("%s: got %v %v, want CB008 and no built file", name, err, p.Problems)
		}
	}
}
