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

// FuzzConfig checks that ReadConfig accepts only registries with an https or loopback address. The
// address must not contain a credential.
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
		os.Remove(h.Config()) // overwriting the file instead could wait for the disk
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
				t.Errorf("the registry %q has the forbidden address %q", name, host.URL)
			}
		}
		for id, s := range c.Servers {
			if s.Work != "" && !filepath.IsAbs(s.Work) {
				t.Errorf("the server %q has the relative work folder %q", id, s.Work)
			}
		}
		if c.Hosts[OpenMCP].URL == "" {
			t.Errorf("the registry %s, which needs no configuration, is missing", OpenMCP)
		}
	})
}

// answers is a registry that gives the same answer to every request.
type answers struct {
	status int
	text   []byte
	asked  int
}

func (a *answers) answer(r *http.Request) (*http.Response, error) {
	if a.asked++; a.asked > 10*maxPages {
		return nil, errors.New("the client does not stop sending requests")
	}
	return &http.Response{StatusCode: a.status, Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.text))}, nil
}

// FuzzAnswer checks that reading the pages of a registry ends for any answer. The second read must
// come from the cache and return as many listings as the first read.
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
		first, _, err := c.get("key", ask)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x1b\u202e") {
				t.Errorf("the error contains control characters: %q", err)
			}
			return
		}
		asked := registry.asked
		again, _, err := c.get("key", ask)
		if err != nil || len(again) != len(first) || registry.asked != asked {
			t.Errorf("the second read returned %d listings after %d more requests, %v; want %d listings from the cache", len(again), registry.asked-asked, err, len(first))
		}
	})
}
