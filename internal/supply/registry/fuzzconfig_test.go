package registry

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
)

// FuzzConfig: a registry that is taken from config.toml is on https or on this
// machine, and its address holds no credential.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"[registry.\"registry.openmcp.org\"]\nurl = \"https://registry.example.com/\"\nnamespace = \"org.example\"\n",
		"[registry.x]\nurl = \"http://evil.example\"\n", "[registry.x]\nurl = \"http://127.0.0.1:1\"\n", "[registry.x]\nurl = \"https://a:b@c/\"\n",
		"[server.\"a/b\"]\nwork = \"relative\"\n", "[server.\"a/b\"]\nwork = \"/absolute\"\n[server.\"a/b\".env]\nA = \"$env:B\"\n", "registry = 1\n", "[registry]\nx = 1\n",
	} {
		f.Add([]byte(text))
	}
	h := home.At(f.TempDir())
	f.Fuzz(func(t *testing.T, text []byte) {
		os.Remove(h.Config()) // to write over a file can wait for the disk
		if err := os.WriteFile(h.Config(), text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(h)
		if err != nil {
			return
		}
		for name, host := range c.Hosts {
			u, err := url.Parse(host.URL)
			if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !egress.IsLoopback(u.Hostname()) {
				t.Errorf("%q is asked at %q", name, host.URL)
			}
		}
		for id, s := range c.Servers {
			if s.Work != "" && !filepath.IsAbs(s.Work) {
				t.Errorf("%q works in %q", id, s.Work)
			}
		}
		if c.Hosts[OpenMCP].URL == "" {
			t.Error("a registry that is known is gone")
		}
	})
}

// answers is a registry that says the same to everything.
type answers struct {
	status int
	text   []byte
	asked  int
}

func (a *answers) answer(r *http.Request) (*http.Response, error) {
	if a.asked++; a.asked > 10*maxPages {
		return nil, errors.New("it is asked without end")
	}
	return &http.Response{StatusCode: a.status, Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.text))}, nil
}

// FuzzAnswer: whatever a registry answers, asking it ends, and what is kept of it
// is what is read again.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		`{"servers":[{"server":{"name":"org.example/x","version":"1.0.0"}}]}`, `{"servers":[],"metadata":{"nextCursor":"again"}}`, `{"servers":null,"metadata":{"nextCursor":"\u202e"}}`,
		`{"servers":[{"server":{"name":"other/x","version":"\u001b[2J"}}]}`, `{`, `[]`, "", `{"servers":[{"server":null}]}`,
	} {
		f.Add(200, []byte(text))
		f.Add(404, []byte(text))
		f.Add(302, []byte(text))
	}
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		registry := &answers{status: 100 + min(max(status, 0), 499), text: text}
		now := time.Unix(1_800_000_000, 0)
		c := cache{dir: t.TempDir(), now: func() time.Time { return now }}
		host := Host{URL: "https://a.example.com", Namespace: "org.example"}
		client := &Client{send: func(_ Host, r *http.Request) (*http.Response, error) { return registry.answer(r) }}
		ask := func() ([]Listing, error) { return client.pages(t.Context(), host, "/v0.1/servers", url.Values{}, 0) }
		first, _, err := c.through("key", ask)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x1b\u202e") {
				t.Errorf("it says %q", err)
			}
			return
		}
		asked := registry.asked
		again, _, err := c.through("key", ask)
		if err != nil || len(again) != len(first) || registry.asked != asked {
			t.Errorf("%d listings became %d, %v", len(first), len(again), err)
		}
	})
}
