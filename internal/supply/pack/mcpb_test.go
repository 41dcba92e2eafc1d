package pack

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// member is one entry of an archive.
type member struct {
	name, text string
	mode       fs.FileMode
	flags      uint16
}

const plainBundle = `{"version":"2.0.0","server":{"type":"node","entry_point":"index.js","mcp_config":{"command":"node","args":["${__dirname}/index.js"]}}}`

func archiveOf(t *testing.T, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Flags: m.flags}
		h.SetMode(m.mode | 0o600)
		f, err := w.CreateHeader(h)
		if err == nil && !strings.HasSuffix(m.name, "/") {
			_, err = io.WriteString(f, m.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func fetchBundle(t *testing.T, archive []byte, digest string) (*Package, error) {
	t.Helper()
	s := Store{Dir: t.TempDir()}
	t.Cleanup(func() { removeAll(s.Dir) })
	get := func(_ context.Context, to io.Writer) error { _, err := to.Write(archive); return err }
	return s.Fetch(t.Context(), Ref{Kind: MCPB, Name: "https://example.com/x.mcpb"}, Want{Digest: digest, Download: get}, nil)
}

func TestHostileBundles(t *testing.T) {
	good := []member{{name: "manifest.json", text: plainBundle}, {name: "index.js", text: "1"}}
	for name, tt := range map[string]struct {
		more []member
		want string
	}{
		"a parent folder":                     {[]member{{name: "../x", text: "x"}}, "is not a simple"},
		"a parent folder through a subfolder": {[]member{{name: "a/../../x", text: "x"}}, "is not a simple"},
		"an absolute path":                    {[]member{{name: "/etc/x", text: "x"}}, "is not a simple"},
		"a path with backslashes":             {[]member{{name: `a\..\..\x`, text: "x"}}, "is not a simple"},
		"a drive letter":                      {[]member{{name: "C:x", text: "x"}}, "is not a simple"},
		"a folder outside":                    {[]member{{name: "../", text: ""}}, "is not a simple"},
		"a link":                              {[]member{{name: "link", text: "/etc/passwd", mode: fs.ModeSymlink}}, "is a link or a device"},
		"a device":                            {[]member{{name: "null", mode: fs.ModeDevice}}, "is a link or a device"},
		"a duplicate file":                    {[]member{{name: "index.js", text: "2"}}, "appears twice"},
		"a duplicate file in capitals":        {[]member{{name: "INDEX.js", text: "2"}}, "appears twice"},
		"a file used as a folder":             {[]member{{name: "index.js/x", text: "2"}}, "appears twice, or is both a file and a folder"},
		"an encrypted file":                   {[]member{{name: "x", text: "x", flags: 1}}, "is encrypted"},
		"a zip bomb":                          {[]member{{name: "x", text: strings.Repeat("0", 8<<20)}}, "grows to more than 250 times"},
		"a path with a dot":                   {[]member{{name: "a/./x", text: "x"}}, "is not a simple"},
	} {
		t.Run(name, func(t *testing.T) {
			archive := archiveOf(t, append(slices.Clone(good), tt.more...)...)
			_, err := fetchBundle(t, archive, digestOf(archive))
			if !errors.Is(err, Unsafe) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got the error %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("a valid bundle", func(t *testing.T) {
		archive := archiveOf(t, append(slices.Clone(good), member{name: "lib/"}, member{name: "lib/a.js", text: "2"})...)
		p, err := fetchBundle(t, append(archive, "a signature"...), digestOf(append(archive, "a signature"...)))
		if err != nil || p.Version != "2.0.0" || p.Kind != MCPB || p.Tree == "" {
			t.Fatalf("got %+v, %v; want version 2.0.0 of a bundle", p, err)
		}
		if argv := p.Argv(nil); len(argv) != 2 || argv[1] != filepath.Join(p.Dir, "tree", "index.js") {
			t.Errorf("the command is %q, want node and the entry point", argv)
		}
	})
	t.Run("another digest", func(t *testing.T) {
		archive := archiveOf(t, good...)
		if _, err := fetchBundle(t, archive, digestOf([]byte("x"))); !errors.Is(err, DigestMismatch) {
			t.Errorf("got the error %v, want %s", err, DigestMismatch)
		}
		if _, err := fetchBundle(t, archive, ""); !errors.Is(err, NotStored) {
			t.Errorf("without a digest: got the error %v, want %s", err, NotStored)
		}
	})
	t.Run("damaged bytes", func(t *testing.T) {
		archive := archiveOf(t, member{name: "manifest.json", text: plainBundle}, member{name: "index.js", text: strings.Repeat("some text ", 9)})
		at := bytes.Index(archive, []byte("index.js")) + len("index.js") + 12
		archive[at] ^= 0x55
		if _, err := fetchBundle(t, archive, digestOf(archive)); !errors.Is(err, Unsafe) {
			t.Errorf("got the error %v, want %s", err, Unsafe)
		}
	})
	t.Run("not an archive", func(t *testing.T) {
		if _, err := fetchBundle(t, []byte("PK"), digestOf([]byte("PK"))); !errors.Is(err, Unsafe) {
			t.Errorf("got the error %v, want %s", err, Unsafe)
		}
	})
}

// A download stops when it reaches the size limit.
func TestBundleTooLarge(t *testing.T) {
	var b bytes.Buffer
	to := &bounded{to: &b, left: 10}
	if _, err := io.Copy(to, strings.NewReader(strings.Repeat("x", 11))); err == nil || !to.full || b.Len() > 10 {
		t.Errorf("%d bytes were written with the error %v, want at most 10 bytes and an error", b.Len(), err)
	}
}

func TestBundleManifests(t *testing.T) {
	server := func(s string) string { return `{"server":` + s + `}` }
	for name, tt := range map[string]struct{ text, want string }{
		"another program":                  {server(`{"type":"node","entry_point":"a.js","mcp_config":{"command":"sh","args":["${__dirname}/a.js"]}}`), "does not run the entry point"},
		"options for the runtime":          {server(`{"type":"node","entry_point":"a.js","mcp_config":{"command":"node","args":["-r","/tmp/x","${__dirname}/a.js"]}}`), "do not begin with the entry point"},
		"code as an argument":              {server(`{"type":"python","entry_point":"a.py","mcp_config":{"command":"python","args":["-c","x"]}}`), "do not begin with the entry point"},
		"another file":                     {server(`{"type":"binary","entry_point":"a","mcp_config":{"command":"/bin/sh"}}`), "does not run the entry point"},
		"an entry point outside":           {server(`{"type":"node","entry_point":"../a.js"}`), "not a plain relative path"},
		"no entry point":                   {server(`{"type":"node"}`), "not a plain relative path"},
		"an unknown type":                  {server(`{"type":"uv","entry_point":"a.py"}`), `the server type "uv" is not supported`},
		"a loader variable":                {server(`{"type":"node","entry_point":"a.js","mcp_config":{"env":{"LD_PRELOAD":"${__dirname}/x.so"}}}`), "a bundle is not allowed to set"},
		"a loader variable in an override": {server(`{"type":"node","entry_point":"a.js","mcp_config":{"platform_overrides":{"linux":{"env":{"ld_preload":"x"}}}}}`), "a bundle is not allowed to set"},
		"code for Node.js":                 {server(`{"type":"node","entry_point":"a.js","mcp_config":{"env":{"Node_Options":"--import=data:text/javascript,1"}}}`), "a bundle is not allowed to set"},
		"another platform":                 {`{"server":{"type":"node","entry_point":"a.js"},"compatibility":{"platforms":["win32"]}}`, "the bundle does not support linux"},
		"two problems":                     {`{"server":{"type":"uv","entry_point":"/a"}}`, "; the entry_point"},
		"a list":                           {"[]", "is not a bundle manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseBundle([]byte(tt.text), "linux"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got the error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestBundleSettings(t *testing.T) {
	b, err := parseBundle([]byte(`{"server":{"type":"node","entry_point":"a.js","mcp_config":{"args":["${__dirname}${/}a.js","--dir=${__dirname}/d","${user_config.many}","${user_config.must}","${user_config.may}"],
		"env":{"TOKEN":"${user_config.token}","MODE":"${user_config.mode}","HOME_DIR":"${HOME}","MAYBE":"${user_config.may}","N":"${user_config.n}"}}},
		"user_config":{"many":{"default":["x","y"]},"must":{"required":true},"may":{},"token":{"sensitive":true,"required":true,"default":"stolen"},"mode":{"default":"fast"},"n":{"default":3}}}`), "linux")
	if err != nil {
		t.Fatal(err)
	}
	words, lacks := b.words("/t")
	env, needs := b.variables("/t")
	got := fmt.Sprint(words, lacks, env, needs)
	if want := "[--dir=/t/d x y] [must] map[MODE:fast N:3] [HOME_DIR TOKEN]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p := &Package{Needs: needs, missingArgs: lacks, argv: []string{"node", "a.js"}, args: words}
	if got := fmt.Sprint(p.Lacks(nil, func(name string) bool { return name == "HOME_DIR" })); got != `[the variable "TOKEN" the argument "must"]` {
		t.Errorf("Lacks returned %s, want TOKEN and must", got)
	}
	if got := p.Lacks([]string{"z"}, func(string) bool { return true }); len(got) != 0 {
		t.Errorf("everything is set, but Lacks returned %s", got)
	}
}

// FuzzBundleManifest checks every manifest that ambit accepts. The entry point must be in the
// bundle. The manifest must not set a variable that only the owner of the machine may set.
func FuzzBundleManifest(f *testing.F) {
	f.Add([]byte(plainBundle))
	f.Add([]byte(`{"server":{"type":"binary","entry_point":"./bin/x","mcp_config":{"command":"${__dirname}/bin/x","env":{"A":"${user_config.a}"},"platform_overrides":{"linux":{"args":["b"]}}}},"user_config":{"a":{"default":["${HOME}"]}}}`))
	f.Add([]byte(`{"server":{"type":"python","entry_point":"a.py","mcp_config":{"command":"python3","args":["a.py","${user_config.x}"]}},"user_config":{"x":{"sensitive":true,"default":"s"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := parseBundle(text, "linux")
		if err != nil {
			return
		}
		if in, err := filepath.Rel("/tree", b.entry("/tree")); err != nil || !filepath.IsLocal(in) || in == "." {
			t.Errorf("the entry point %q is not in the bundle", b.entry("/tree"))
		}
		b.words("/tree")
		env, needs := b.variables("/tree")
		for name := range env {
			if MachineVariable(name) && name != "PYTHONPATH" || slices.Contains(needs, name) {
				t.Errorf("the bundle sets the variable %q", name)
			}
		}
	})
}
