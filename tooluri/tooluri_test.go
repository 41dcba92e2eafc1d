package tooluri_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/tooluri"
)

const digest = "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a"

func TestParse(t *testing.T) {
	pin := func(s string) tooluri.Pin {
		p, err := tooluri.ParsePin(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	tests := []struct {
		in   string
		want tooluri.URI
		err  error
	}{
		{in: "matrix://tool/mcp/fs/read_text_file@2026.1.14", want: tooluri.URI{Server: "fs", Name: "read_text_file", Pin: pin("2026.1.14")}},
		{in: "matrix://tool/mcp/web-search/a.b-c_D@1.0.0-rc.1+build.5", want: tooluri.URI{Server: "web-search", Name: "a.b-c_D", Pin: pin("1.0.0-rc.1+build.5")}},
		{in: "matrix://tool/mcp/fs/read@" + digest, want: tooluri.URI{Server: "fs", Name: "read", Pin: pin(digest)}},
		{in: "matrix://tool/payments/send@1.0.0", want: tooluri.URI{Namespace: "payments", Name: "send", Pin: pin("1.0.0")}},

		{in: "matrix://tool/mcp/fs/read", err: tooluri.ErrUnpinnedTool},
		{in: "matrix://tool/mcp/fs/read@", err: tooluri.ErrUnpinnedTool},
		{in: "matrix://tool/mcp/fs/read@latest", err: tooluri.ErrUnpinnedTool},
		{in: "matrix://tool/mcp/fs/read@1.x", err: tooluri.ErrUnpinnedTool},
		{in: "matrix://tool/mcp/fs/read@1.2", err: tooluri.ErrUnpinnedTool},
		{in: "matrix://tool/mcp/fs/read@v1.2.3", err: tooluri.ErrUnpinnedTool},
		{in: "matrix://tool/chain/send", err: tooluri.ErrUnpinnedTool},

		{in: "", err: tooluri.ErrInvalidURI},
		{in: "fs/read@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "MATRIX://tool/mcp/fs/read@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://agent/default", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/read@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/read@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp//read@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/FS/read@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/a/b@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/read file@1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/read@1.0.0 ", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/read@>=1.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/read@1.0.0@2.0.0", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/read@sha256:abc", err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/read@" + strings.ToUpper(digest), err: tooluri.ErrUnpinnedTool},
		{in: "matrix://tool/mcp/fs/read@sha256:" + strings.ToUpper(digest[7:]), err: tooluri.ErrInvalidURI},
		{in: "matrix://tool/mcp/fs/" + strings.Repeat("a", 129) + "@1.0.0", err: tooluri.ErrInvalidURI},
	}
	for _, tt := range tests {
		got, err := tooluri.Parse(tt.in)
		if !errors.Is(err, tt.err) || got != tt.want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v, %v", tt.in, got, err, tt.want, tt.err)
		}
		if err == nil && got.String() != tt.in {
			t.Errorf("Parse(%q).String() = %q", tt.in, got.String())
		}
	}
}

func TestErrorIsOneKind(t *testing.T) {
	for _, in := range []string{"", "matrix://tool/mcp/fs/read", "matrix://tool/x"} {
		_, err := tooluri.Parse(in)
		if errors.Is(err, tooluri.ErrUnpinnedTool) == errors.Is(err, tooluri.ErrInvalidURI) {
			t.Errorf("Parse(%q) returned %v, which is not exactly one of the two errors of the package", in, err)
		}
	}
}

func TestErrorStaysShort(t *testing.T) {
	_, err := tooluri.Parse("matrix://tool/" + strings.Repeat("é", 1<<20))
	if n := len(err.Error()); n > 1000 {
		t.Errorf("the error for a 2 MiB URI has %d bytes, want a short one", n)
	}
}

func TestJSON(t *testing.T) {
	const s = `"matrix://tool/mcp/fs/read@1.0.0"`
	var u tooluri.URI
	if err := json.Unmarshal([]byte(s), &u); err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(u); err != nil || string(b) != s {
		t.Errorf("got %s, %v; want %s", b, err, s)
	}
	if err := json.Unmarshal([]byte(`"matrix://tool/mcp/fs/read"`), &u); !errors.Is(err, tooluri.ErrUnpinnedTool) {
		t.Errorf("an unpinned URI in JSON: got %v, want ErrUnpinnedTool", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("matrix://tool/mcp/fs/read_text_file@2026.1.14")
	f.Add("matrix://tool/payments/send@" + digest)
	f.Add("matrix://tool/mcp/fs/a@b@1.0.0")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := tooluri.Parse(s)
		if err != nil {
			if !errors.Is(err, tooluri.ErrUnpinnedTool) && !errors.Is(err, tooluri.ErrInvalidURI) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if u.String() != s {
			t.Fatalf("Parse(%q).String() = %q", s, u)
		}
		if again, err := tooluri.Parse(u.String()); err != nil || again != u {
			t.Fatalf("the second Parse(%q) = %+v, %v; want %+v", s, again, err, u)
		}
	})
}

// FuzzPin checks that ParsePin accepts exactly the versions that the Masterminds semver library accepts.
func FuzzPin(f *testing.F) {
	for _, s := range []string{"1.2.3", "01.2.3", "1.2.3-rc.1+b.5", "1.2.3-01", "1.2.3-0a", "1.2", "1.2.3+", "1.2.3-+x", "1.2.3+a-b", "1.2.3-a+b+c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.HasPrefix(s, "sha256:") || len(s) > 60 {
			return // s is a digest, or a version whose numbers can be too large for the library
		}
		_, err := tooluri.ParsePin(s)
		v, libErr := semver.StrictNewVersion(s)
		if (err == nil) != (libErr == nil) {
			for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r < '0' || r > '9' }) {
				if len(part) > 18 {
					return // the number is larger than the library's integers
				}
			}
			t.Fatalf("for %q, ParsePin returned the error %v, but the library returned %v and the error %v",
				s, err, v, libErr)
		}
	})
}
