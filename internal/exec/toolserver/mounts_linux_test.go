package toolserver

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

// TestProtect checks which mounts protect files inside a mount. A folder above a protected file becomes a mount point,
// so that a server cannot move it away.
func TestProtect(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"work/agents/deep", "work/home/.ambit"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	at := func(path string) string { return filepath.Join(dir, path) }
	if err := os.WriteFile(at("work/agents/deep/a.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	work := sandbox.Mount{Source: at("work"), To: "/w", Write: true}
	pin := func(path, to string) sandbox.Mount { return sandbox.Mount{Source: at(path), To: to, Write: true} }
	for _, tt := range []struct {
		name     string
		mount    sandbox.Mount
		own      string
		readOnly []string
		want     []sandbox.Mount
	}{
		{"nothing to protect", work, at("elsewhere"), []string{at("other/a.json"), ""}, nil},
		{
			"a manifest", work, at("elsewhere"),
			[]string{at("work/agents/deep/a.json")},
			[]sandbox.Mount{
				pin("work/agents/deep", "/w/agents/deep"),
				pin("work/agents", "/w/agents"),
				{Source: at("work/agents/deep/a.json"), To: "/w/agents/deep/a.json"},
			},
		},
		{"a lock that does not exist", work, at("elsewhere"), []string{at("work/ambit.lock")}, nil},
		{"a manifest that is already read-only", sandbox.Mount{Source: at("work"), To: "/w"}, at("elsewhere"), []string{at("work/agents/deep/a.json")}, nil},
		{
			"ambit's home", work, at("work/home/.ambit"), nil,
			[]sandbox.Mount{pin("work/home", "/w/home"), {To: "/w/home/.ambit", Hide: true}},
		},
		{
			"ambit's home in a read-only folder",
			sandbox.Mount{Source: at("work"), To: "/w"},
			at("work/home/.ambit"), nil,
			[]sandbox.Mount{{To: "/w/home/.ambit", Hide: true}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := protect(tt.mount, tt.own, tt.readOnly); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestProtected checks which declared paths a server can only read, because they are manifests or
// folders of manifests.
func TestProtected(t *testing.T) {
	readOnly := []string{"/w/agents", "/w/own/agent.json", ""}
	for path, want := range map[string]bool{
		"/w/agents": true, "/w/agents/data": true, "/w/own/agent.json": true,
		"/w": false, "/w/own": false, "/w/own/data": false, "/w/agents-data": false,
	} {
		if got := protected(path, readOnly); got != want {
			t.Errorf("protected(%s) = %v", path, got)
		}
	}
}

// TestDeclared checks which declared paths a server sees. A path that leads elsewhere through a link is shown only if
// the server also has the right to the real path.
func TestDeclared(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(dir, path) }
	for _, folder := range []string{"data/below", "ambit", "elsewhere"} {
		if err := os.MkdirAll(at(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("elsewhere"), at("link")); err != nil {
		t.Fatal(err)
	}
	read := func(path string) agent.Right { return agent.Right{Kind: agent.CanRead, What: at(path)} }
	write := func(path string) agent.Right { return agent.Right{Kind: agent.CanWrite, What: at(path)} }
	for _, tt := range []struct {
		name   string
		access agent.Access
		want   []string
		log    string
	}{
		{"a folder", agent.Access{read("data")}, []string{"data"}, ""},
		{"a missing file", agent.Access{read("none")}, nil, "does not exist"},
		{"ambit's own folder", agent.Access{read("ambit")}, nil, "belongs to ambit"},
		{"a link", agent.Access{read("link")}, nil, "is a link to " + at("elsewhere")},
		{"a right to read through a link, and a right to read its target", agent.Access{read("link"), read("elsewhere")}, []string{"link", "elsewhere"}, ""},
		{"a right to write through a link, and a right to read its target", agent.Access{write("link"), read("elsewhere")}, []string{"elsewhere"}, "ambit allow desk one --write"},
		{"a folder in a folder that it can write", agent.Access{write("data"), read("data/below")}, []string{"data"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log strings.Builder
			o := Options{Confine: &Confinement{Agent: "desk"}, Log: func(_, line string) { log.WriteString(line) }}
			s := newServer("id", Spec{Server: agent.Server{Alias: "one"}}, o)
			var got []string
			for _, r := range s.declared(tt.access, at("ambit"), "") {
				got = append(got, strings.TrimPrefix(r.What, dir+"/"))
			}
			if !slices.Equal(got, tt.want) || tt.log == "" != (log.Len() == 0) || !strings.Contains(log.String(), tt.log) {
				t.Errorf("got %q with the log %q, want %q with %q", got, log.String(), tt.want, tt.log)
			}
		})
	}
}

// TestReplaceable checks that a program counts as replaceable if the server can write its folder, even through a link.
func TestReplaceable(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string { return filepath.Join(dir, path) }
	if err := os.MkdirAll(at("bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("bin/tool"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"linked": "bin", "tool": "bin/tool"} {
		if err := os.Symlink(at(to), at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		program, folder string
		kind            agent.RightKind
		want            bool
	}{
		{"bin/tool", "bin", agent.CanWrite, true},
		{"bin/tool", "bin", agent.CanRead, false},
		{"bin/tool", "bin/tool", agent.CanWrite, true},
		{"bin/tool", "linked", agent.CanWrite, true},
		{"tool", "bin", agent.CanWrite, true},
		{"bin/tool", "binary", agent.CanWrite, false},
	} {
		access := agent.Access{{Kind: tt.kind, What: at(tt.folder)}}
		if got := Replaceable(at(tt.program), access); got != tt.want {
			t.Errorf("%s with %s %s: got %t", tt.program, tt.kind, tt.folder, got)
		}
	}
}

// If a server can write a file, it gets a private folder in place of the file's folder, even if the file does not
// exist.
func TestPrivateParents(t *testing.T) {
	dir := t.TempDir()
	at := func(path string) string { return filepath.Join(dir, path) }
	for _, folder := range []string{"data", "ambit"} {
		if err := os.Mkdir(at(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("data/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(path string) agent.Right { return agent.Right{Kind: agent.CanWrite, What: path} }
	for _, tt := range []struct {
		name   string
		access agent.Access
		want   []string
	}{
		{"a file", agent.Access{write(at("data/file"))}, []string{at("data")}},
		{"a missing file", agent.Access{write(at("data/none"))}, []string{at("data")}},
		{"two files in one folder", agent.Access{write(at("data/file")), write(at("data/none"))}, []string{at("data")}},
		{"a missing folder", agent.Access{write(at("none/file"))}, []string{at("none")}},
		{"a folder", agent.Access{write(at("data"))}, nil},
		{"a missing file to read", agent.Access{{Kind: agent.CanRead, What: at("data/none")}}, []string{at("data")}},
		{"a file to read", agent.Access{{Kind: agent.CanRead, What: at("data/file")}}, nil},
		{"ambit's own file", agent.Access{write(at("ambit/file"))}, nil},
		{"a folder of the system", agent.Access{write("/etc/none"), write("/usr/lib/none/file")}, nil},
		{"the root and /tmp", agent.Access{write("/none"), write("/tmp/no-such-file")}, nil},
		{"a folder that is shown", agent.Access{write(at("shown/file"))}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := filepath.Join(t.TempDir(), "server")
			shown := func(dir string) bool { return dir == at("shown") }
			mounts, err := privateParents(files, at("ambit"), tt.access, shown)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range mounts {
				got = append(got, m.To)
				info, err := os.Stat(m.Source)
				if err != nil || !info.IsDir() || !m.Write || !m.Give || sandbox.Inside(m.Source, files) {
					t.Errorf("the mount is %+v (error %v)", m, err)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
