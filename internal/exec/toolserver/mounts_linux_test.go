package toolserver

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

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
			"a manifest", work, at("elsewhere"), []string{at("work/agents/deep/a.json")},
			[]sandbox.Mount{
				pin("work/agents/deep", "/w/agents/deep"),
				pin("work/agents", "/w/agents"),
				{Source: at("work/agents/deep/a.json"), To: "/w/agents/deep/a.json"},
			},
		},
		{"a lock that does not exist", work, at("elsewhere"), []string{at("work/ambit.lock")}, nil},
		{"a manifest that is read-only anyway", sandbox.Mount{Source: at("work"), To: "/w"}, at("elsewhere"), []string{at("work/agents/deep/a.json")}, nil},
		{
			"ambit's home", work, at("work/home/.ambit"), nil,
			[]sandbox.Mount{pin("work/home", "/w/home"), {To: "/w/home/.ambit", Hide: true}},
		},
		{
			"ambit's home in a read-only folder", sandbox.Mount{Source: at("work"), To: "/w"}, at("work/home/.ambit"), nil,
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
