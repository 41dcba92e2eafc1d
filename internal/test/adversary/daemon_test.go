package adversary

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/ambit-run/ambit/internal/test/output"
)

// daemon is a running "ambit serve" process.
type daemon struct {
	*world
	url, console, key string
	log               *output.Buffer
}

// serve starts a daemon for the agents in the directory agents.
func (w *world) serve(args ...string) *daemon {
	w.t.Helper()
	d := &daemon{world: w, log: &output.Buffer{}}
	cmd := w.command(append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--agents", filepath.Join(w.dir, "agents")}, args...)...)
	cmd.Stderr = d.log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
	})
	var ready struct {
		URL, Console string
		KeyFile      string `json:"key_file"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &ready) != nil {
		w.t.Fatalf("ambit serve printed %q, %v: %s", line, err, d.log.String())
	}
	key, err := os.ReadFile(ready.KeyFile)
	if err != nil {
		w.t.Fatal(err)
	}
	d.url, d.console, d.key = ready.URL, ready.Console, strings.TrimSpace(string(key))
	return d
}

// send sends a request with the daemon's key.
func (d *daemon) send(method, path, body string, change func(*http.Request)) (*http.Response, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp, string(text)
}

// signIn signs in to the console with the printed link. It returns the client and the path of the session's
// pages.
func (d *daemon) signIn() (c *http.Client, home string) {
	d.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	c = &http.Client{Jar: jar}
	link, err := url.Parse(d.console)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := c.PostForm(d.url+"/login", url.Values{"ticket": {link.Query().Get("ticket")}})
	if err != nil {
		d.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		d.t.Fatalf("signing in returned status %d", resp.StatusCode)
	}
	return c, strings.TrimSuffix(resp.Request.URL.Path, "/")
}

// markup returns the elements of a page that can run a script or load content from elsewhere.
func markup(page string) (found []string) {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return []string{err.Error()}
	}
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode {
			for _, a := range n.Attr {
				if strings.HasPrefix(strings.ToLower(a.Key), "on") || a.Key == "style" || strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "javascript:") {
					found = append(found, fmt.Sprintf("<%s %s=%q>", n.Data, a.Key, a.Val))
				}
				if a.Key == "src" && !strings.HasPrefix(a.Val, "/") {
					found = append(found, fmt.Sprintf("<%s src=%q>", n.Data, a.Val))
				}
			}
			if n.Data == "script" && n.FirstChild != nil {
				found = append(found, "an inline script")
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(doc)
	return found
}

// TestConsoleShowsTextAsText checks that every page of the console escapes text from tools, manifests,
// results, callers and records. It also checks that the content security policy of every page allows no
// inline script.
func TestConsoleShowsTextAsText(t *testing.T) {
	w := newWorld(t)
	w.matrix("agents/poisoned.json", "poison")
	w.write("agents/evil/findagent.json", findagent(t, "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(1)>"))
	d := w.serve()
	for _, body := range []string{`{"tool":"look","arguments":{}}`, `{"tool":"<script>alert(2)</script>","arguments":{"<img src=x onerror=alert(3)>":"<script>"}}`} {
		d.send("POST", "/api/v1/agents/poisoned/call", body, nil)
	}
	c, home := d.signIn()
	pages := []string{"/login?ticket=%22%3E%3Cscript%3E"}
	for _, path := range []string{"/", "/agents", "/agents/poisoned", "/agents/evil", "/agents/poisoned/tools/look", "/agents/evil/tools/look", "/journal", "/journal/0/0", "/journal/0/1", "/journal?tool=%3Cscript%3Ealert(1)%3C/script%3E", "/approvals", "/queue", "/activity", "/policy", "/%3Cscript%3Ealert(1)%3C/script%3E"} {
		pages = append(pages, home+path)
	}
	shown := 0
	for _, path := range pages {
		resp, err := c.Get(d.url + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		page := string(text)
		if strings.Contains(page, "alert(") {
			shown++
		}
		if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/html") {
			for _, m := range markup(page) {
				t.Errorf("%s contains %s", path, m)
			}
		}
		csp := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s has the policy %q", path, csp)
		}
	}
	if shown < 4 {
		t.Errorf("only %d pages show hostile text, so the test checked little", shown)
	}
}

// TestLogIsTheDaemonsOwn checks that callers and servers cannot forge a line in the daemon's log. They also
// cannot control the terminal of a person who reads the log. The log must not contain a key.
func TestLogIsTheDaemonsOwn(t *testing.T) {
	w := newWorld(t)
	w.matrix("agents/poisoned.json", "poison")
	w.matrix("agents/named.json", "named")
	w.matrix("agents/dies.json", "dies")
	w.write("agents/bad/findagent.json", findagent(t, poison))
	d := w.serve()
	d.send("POST", "/api/v1/agents/poisoned/call", `{"tool":"look"}`, nil)
	d.send("POST", "/api/v1/agents/poisoned/call", `{"tool":"look\nforged line\u001b[2J"}`, nil)
	d.send("GET", "/api/v1/agents/x%0Aforged%20line%1B", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer unknown\u009b") })
	log := d.log.String()
	if r := harm(log); r != 0 {
		t.Errorf("the log contains %U: %q", r, around(log, r))
	}
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "forged line") {
			t.Errorf("a caller wrote the line %q", line)
		}
	}
	if strings.Contains(log, d.key) {
		t.Error("the log contains the key")
	}
}

// TestDaemonIsNotABrowsersPuppet checks that the daemon refuses forged requests from a browser. These are
// requests from pages of other sites, requests after DNS rebinding, and forms without their session's token.
func TestDaemonIsNotABrowsersPuppet(t *testing.T) {
	w := newWorld(t)
	w.matrix("agents/poisoned.json", "poison")
	d := w.serve()
	call := `{"tool":"look"}`
	for name, tt := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"a valid request":           {nil, http.StatusOK},
		"an unknown host name":      {func(r *http.Request) { r.Host = "evil.example:80" }, http.StatusMisdirectedRequest},
		"another site":              {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		"a sandboxed frame":         {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"a fetch from another site": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"no key":                    {func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		"two keys":                  {func(r *http.Request) { r.Header.Add("Authorization", "Bearer x") }, http.StatusUnauthorized},
		"a key in the address":      {func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "key=" + d.key }, http.StatusUnauthorized},
		"the key as a cookie":       {func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("Cookie", "ambit_console="+d.key) }, http.StatusUnauthorized},
	} {
		if resp, body := d.send("POST", "/api/v1/agents/poisoned/call", call, tt.change); resp.StatusCode != tt.status {
			t.Errorf("%s: got status %d: %.200s", name, resp.StatusCode, body)
		}
	}
	c, home := d.signIn()
	resp, err := c.PostForm(d.url+home+"/agents/poisoned/call", url.Values{"json": {"{}"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a form without its token got status %d", resp.StatusCode)
	}
	// The link must not work twice.
	link, _ := url.Parse(d.console)
	resp, err = http.PostForm(d.url+"/login", url.Values{"ticket": {link.Query().Get("ticket")}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a used link got status %d", resp.StatusCode)
	}
	// The session gives access to the pages, but not to the API.
	resp, err = c.Post(d.url+"/api/v1/agents/poisoned/call", "application/json", strings.NewReader(call))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a call of the API with a session of the console got status %d", resp.StatusCode)
	}
}
