package daemon

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// person is a console user with a browser. The pages of the user's session are below base.
type person struct {
	*http.Client
	r    *rig
	base string
}

// consoleRig returns a daemon with a console.
func consoleRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	b := r.store
	if err := r.OpenConsole(t.Context(), &ConsoleOptions{Store: b, Credentials: &credential.Source{}}); err != nil {
		t.Fatal(err)
	}
	return r
}

// link requests a sign-in link with a key.
func (r *rig) link(key string) string {
	r.t.Helper()
	a := r.ask(key, "POST", "/api/v1/console", "")
	link, _ := a.doc["url"].(string)
	if a.status != 200 || link == "" {
		r.t.Fatalf("the request for a link got %d %s", a.status, a.body)
	}
	return link
}

func (r *rig) person() *person {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return &person{Client: &http.Client{Jar: jar}, r: r}
}

// signIn signs in with a link and returns the status.
func (p *person) signIn(link string) int {
	p.r.t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		p.r.t.Fatal(err)
	}
	resp := p.ask(p.r.t.Context(), "POST", "/login", u.RawQuery)
	resp.Body.Close()
	p.base = strings.TrimSuffix(resp.Request.URL.Path, "/")
	return resp.StatusCode
}

// page opens a page of the session.
func (p *person) page(path string) (status int, text string) {
	p.r.t.Helper()
	resp := p.ask(p.r.t.Context(), "GET", p.base+path, "")
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		p.r.t.Fatal(err)
	}
	return resp.StatusCode, string(page)
}

// status sends a request to a page of the session and returns the HTTP status.
func (p *person) status(method, path, form string) int {
	p.r.t.Helper()
	resp := p.ask(p.r.t.Context(), method, p.base+path, form)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		p.r.t.Fatal(err)
	}
	return resp.StatusCode
}

func (p *person) ask(ctx context.Context, method, path, form string) *http.Response {
	p.r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.r.server.URL+path, strings.NewReader(form))
	if err != nil {
		p.r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := p.Do(req)
	if err != nil {
		p.r.t.Fatal(err)
	}
	return resp
}

// When a key is revoked or expires, its session and the open stream end. The links of the key become
// invalid. Sessions of other keys continue.
func TestConsoleEndsWithItsKey(t *testing.T) {
	for name, end := range map[string]func(*rig, string) error{
		"revoked": func(r *rig, id string) error {
			_, err := identity.NewAPIKeys(r.store.Authority).Revoke(t.Context(), id) // revoke the key as another process would
			return err
		},
		"expired": func(r *rig, id string) error {
			return r.db.Write(t.Context(), func(tx state.Tx) error {
				_, err := tx.Exec(`UPDATE api_keys SET expires = 1 WHERE id = $1`, id)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := consoleRig(t)
			k, key, err := r.keys.New(t.Context(), identity.KeySpec{Admin: true})
			if err != nil {
				t.Fatal(err)
			}
			out, stays := r.person(), r.person()
			left := r.link(key)
			if got := out.signIn(r.link(key)); got != 200 {
				t.Fatalf("signing in: %d", got)
			}
			if got := stays.signIn(r.link(r.admin)); got != 200 {
				t.Fatalf("signing in with the daemon's own key returned %d", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			stream := out.ask(ctx, "GET", out.base+"/live", "")
			defer stream.Body.Close()
			if stream.StatusCode != 200 {
				t.Fatalf("opening the stream: %d", stream.StatusCode)
			}
			if err := end(r, k.ID); err != nil {
				t.Fatal(err)
			}
			if got := out.status("GET", "/journal", ""); got != 401 {
				t.Fatalf("after the key ended, a page returned %d", got)
			}
			if got := out.status("POST", "/approvals/x", "decision=approve"); got != 401 {
				t.Fatalf("after the key ended, a form returned %d", got)
			}
			if _, err := io.Copy(io.Discard, stream.Body); err != nil {
				t.Errorf("the stream ended with %v", err)
			}
			if got := r.person().signIn(left); got != 403 {
				t.Errorf("after the key ended, an unused link returned %d", got)
			}
			if got := stays.status("GET", "/journal", ""); got != 200 {
				t.Errorf("a page of another key's session returned %d", got)
			}
		})
	}
}

// The policy page names the agents that a person can choose. The page of an agent shows what sandboxes refused to its
// servers.
func TestPages(t *testing.T) {
	r := consoleRig(t)
	r.Prove(t.Context())
	p := r.person()
	if got := p.signIn(r.link(r.admin)); got != 200 {
		t.Fatalf("signing in: %d", got)
	}
	for path, want := range map[string]string{
		"/policy":       `<option value="alpha" selected>alpha</option>`,
		"/agents/alpha": `<code>ambit allow alpha db --host 10.0.0.1:5432 --private</code>`,
	} {
		if status, page := p.page(path); !strings.Contains(page, want) {
			t.Errorf("%d: the page %s does not contain %s: %s", status, path, want, page)
		}
	}
}

// The pages show the name of an API key in addition to its id.
func TestKeyNames(t *testing.T) {
	r := consoleRig(t)
	keys := identity.NewAPIKeys(r.store.Authority)
	named, _, err := keys.New(t.Context(), identity.KeySpec{Name: "ci"})
	if err == nil {
		_, _, err = keys.New(t.Context(), identity.KeySpec{Name: "bot", Principal: "bot@example.com"})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := backend{r.Daemon, &ConsoleOptions{Store: r.store}}.KeyNames(t.Context())
	if err != nil || len(got) != 1 || got["key:"+named.ID] != "ci" {
		t.Errorf("the names of the keys are %v, %v", got, err)
	}
}
