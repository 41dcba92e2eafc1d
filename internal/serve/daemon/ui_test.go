package daemon

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// paged is a fake agent with web pages.
type paged struct {
	*fake
	pages fs.FS
}

func (p paged) UI() (fs.FS, string) { return p.pages, "index.html" }

// uiRig serves one agent with pages and one without, and returns the keys that seal tickets.
func uiRig(t *testing.T) (*rig, *identity.Keys) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"outside.txt": "outside", "ui/index.html": "<script src=app.js></script>", "ui/app.js": "1", "ui/sub/pic.svg": "<svg/>", "ui/data.bin": "x", "ui/.env": "hidden",
		"ui/empty.css": "",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string]string{"pages.json": matrix("pages"), "plain.json": matrix("plain")}, func(r *rig, o *Options) {
		o.Tickets = keys
		start := o.Start
		o.Start = func(ctx context.Context, name string, m *manifest.Manifest) Running {
			running := start(ctx, name, m)
			if name == "plain" {
				return running
			}
			return paged{running.(*fake), os.DirFS(filepath.Join(dir, "ui"))}
		}
	})
	return r, keys
}

// get sends a request without a key. It sends the path unchanged, without the normalization of a browser.
func (r *rig) get(target string, header http.Header) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", r.server.URL, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.URL.Opaque = target
	for name, values := range header {
		req.Header[name] = values
	}
	client := *r.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(body)
}

var framed = regexp.MustCompile(`src="([^"]*)/index\.html"`)

// pages returns the address of the pages that a frame contains.
func (r *rig) pages(frame string) string {
	r.t.Helper()
	_, body := r.get(frame, nil)
	src := framed.FindStringSubmatch(body)
	if src == nil {
		r.t.Fatalf("the frame has no page: %s", body)
	}
	return strings.TrimPrefix(src[1], r.server.URL)
}

func TestUIPages(t *testing.T) {
	r, _ := uiRig(t)
	a := r.ask(r.admin, "GET", "/api/v1/agents/pages/ui", "")
	at, _ := a.doc["url"].(string)
	if a.status != 200 || !strings.HasPrefix(at, "/ui/") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	frame, body := r.get(at, nil)
	if frame.StatusCode != 200 || !strings.Contains(body, `sandbox="allow-scripts"`) || strings.Contains(body, "allow-same-origin") || strings.Contains(body, at) {
		t.Errorf("%d %s", frame.StatusCode, body)
	}
	if csp := frame.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'self'") || strings.Contains(csp, "unsafe") {
		t.Errorf("the frame has the policy %s", csp)
	}
	at = r.pages(at)
	for name, kind := range map[string]string{
		"": "text/html; charset=utf-8", "index.html": "text/html; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "sub/pic.svg": "image/svg+xml",
		"empty.css": "text/css; charset=utf-8", "data.bin": "application/octet-stream",
	} {
		resp, _ := r.get(at+"/"+name, nil)
		h := resp.Header
		if resp.StatusCode != 200 || h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%q: %d %v", name, resp.StatusCode, h)
		}
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"sandbox allow-scripts;", "default-src 'none'", "connect-src 'none'", "frame-ancestors " + r.server.URL + ";", "form-action 'none'", "base-uri 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%q: %s is missing in %s", name, want, csp)
			}
		}
		if got := h.Get("Connection-Allowlist"); got != "(response-origin); webrtc=block" {
			t.Errorf("%q: the policy of the page allows connections to %q", name, got)
		}
		if strings.Contains(csp, "allow-same-origin") || strings.Contains(csp, "allow-top-navigation") || strings.Contains(csp, "script-src 'self'") {
			t.Errorf("%q: %s", name, csp)
		}
		if (h.Get("Content-Disposition") == "attachment") != (kind == "application/octet-stream") {
			t.Errorf("%q: %s", name, h.Get("Content-Disposition"))
		}
	}
}

// Hidden files and files outside the pages are not served. The spelling of their path does not
// matter.
func TestUIOutside(t *testing.T) {
	r, _ := uiRig(t)
	at, _ := r.ask(r.admin, "GET", "/api/v1/agents/pages/ui", "").doc["url"].(string)
	at = r.pages(at)
	for _, name := range []string{
		"../outside.txt", "%2e%2e/outside.txt", "..%2foutside.txt", "sub/../../outside.txt", "/etc/hosts", "//etc/hosts", ".env", "sub/.env", "sub", "sub/", "gone.html",
		"index.html/", "index.html%00", `..\outside.txt`, "%5c..%5coutside.txt", "./app.js",
	} {
		if resp, body := r.get(at+"/"+name, nil); resp.StatusCode == 200 || strings.Contains(body, "outside") && resp.StatusCode < 300 || strings.Contains(body, "hidden") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

// A ticket opens the pages of one agent until the ticket expires. Only a caller with a key for that agent can get a
// ticket.
func TestUITickets(t *testing.T) {
	r, keys := uiRig(t)
	if a := r.ask(r.admin, "GET", "/api/v1/agents/plain/ui", ""); a.status != 404 {
		t.Errorf("a ticket for an agent without pages: got %d", a.status)
	}
	if a := r.ask("", "GET", "/api/v1/agents/pages/ui", ""); a.status != 401 {
		t.Errorf("without a key: %d", a.status)
	}
	if a := r.ask(r.key(identity.KeySpec{Name: "other", Agents: []string{"plain"}}), "GET", "/api/v1/agents/pages/ui", ""); a.status != 403 {
		t.Errorf("a ticket with a key for another agent: got %d", a.status)
	}
	sealed := func(purpose, text string) string {
		return base64.RawURLEncoding.EncodeToString(keys.Seal(purpose, []byte(text)))
	}
	good, frame := sealed(forPages, `{"agent":"pages","until":99999999999}`), sealed(forFrame, `{"agent":"pages","until":99999999999}`)
	flipped := []byte(good)
	flipped[10] ^= 1
	for name, tt := range map[string]struct {
		ticket string
		status int
	}{
		"good":                          {good, 200},
		"the ticket of a frame":         {frame, 404},
		"expired":                       {sealed(forPages, fmt.Sprintf(`{"agent":"pages","until":%d}`, time.Now().Unix()-1)), 404},
		"changed":                       {string(flipped), 404},
		"a ticket for another purpose":  {sealed("session", `{"agent":"pages","until":99999999999}`), 404},
		"without pages":                 {sealed(forPages, `{"agent":"plain","until":99999999999}`), 404},
		"a ticket for an unknown agent": {sealed(forPages, `{"agent":"gone","until":99999999999}`), 404},
		"none":                          {"x", 404},
	} {
		if resp, _ := r.get("/ui/"+tt.ticket+"/index.html", nil); resp.StatusCode != tt.status {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	for ticket, status := range map[string]int{frame: 200, good: 404} {
		if resp, _ := r.get("/ui/"+ticket, nil); resp.StatusCode != status {
			t.Errorf("a request for the frame got %d, want %d", resp.StatusCode, status)
		}
	}
	if resp, _ := r.get("/ui/"+good+"/app.js", http.Header{"Origin": {"null"}}); resp.StatusCode != 200 || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a page requested one of its files and got %d", resp.StatusCode)
	}
	// A ticket is not accepted as a key. Requests that pages send to the API, and requests from other
	// sites, are refused.
	for path, header := range map[string]http.Header{
		"/api/v1/agents":              {"Authorization": {"Bearer " + good}},
		"/api/v1/whoami":              {"Origin": {"null"}},
		"/ui/" + good + "/index.html": {"Origin": {"https://elsewhere.example.com"}},
	} {
		if resp, _ := r.get(path, header); resp.StatusCode < 400 {
			t.Errorf("%s with %v: %d", path, header, resp.StatusCode)
		}
	}
}

// A ticket becomes invalid when the key that requested it is revoked.
func TestUITicketEndsWithItsKey(t *testing.T) {
	r, _ := uiRig(t)
	k, text, err := r.keys.New(t.Context(), identity.KeySpec{Agents: []string{"pages"}})
	if err != nil {
		t.Fatal(err)
	}
	at, _ := r.ask(text, "GET", "/api/v1/agents/pages/ui", "").doc["url"].(string)
	other, _ := r.ask(r.admin, "GET", "/api/v1/agents/pages/ui", "").doc["url"].(string)
	pages := r.pages(at)
	if resp, _ := r.get(pages+"/index.html", nil); resp.StatusCode != 200 {
		t.Fatalf("before the key was revoked, a page returned %d", resp.StatusCode)
	}
	if _, err := identity.NewAPIKeys(r.store.Authority).Revoke(t.Context(), k.ID); err != nil { // revoke the key as another process would
		t.Fatal(err)
	}
	for _, path := range []string{at, pages + "/index.html", pages + "/app.js"} {
		if resp, _ := r.get(path, nil); resp.StatusCode != 404 {
			t.Errorf("after the key was revoked, %s returned %d", path, resp.StatusCode)
		}
	}
	if a := r.ask("", "POST", at, `{"tool":"echo"}`); a.status != 404 {
		t.Errorf("after the key was revoked, a call returned %d", a.status)
	}
	if resp, _ := r.get(r.pages(other)+"/app.js", nil); resp.StatusCode != 200 {
		t.Errorf("with the ticket of another key, a page returned %d", resp.StatusCode)
	}
}

var formToken = regexp.MustCompile(`name="token" value="([^"]*)"`)

// A ticket of the console becomes invalid when the person signs out, and never outlives the session. Other sessions and
// keys of the same principal keep their tickets.
func TestUITicketEndsWithItsSession(t *testing.T) {
	r, _ := uiRig(t)
	if err := r.OpenConsole(t.Context(), &ConsoleOptions{Store: r.store, Credentials: &credential.Source{}}); err != nil {
		t.Fatal(err)
	}
	open := func() (p *person, frame string) {
		p = r.person()
		if got := p.signIn(r.link(r.admin)); got != 200 {
			t.Fatalf("signing in: %d", got)
		}
		resp := p.ask(t.Context(), "GET", p.base+"/agents/pages/ui", "")
		resp.Body.Close()
		return p, resp.Request.URL.Path
	}
	leaves, at := open()
	_, other := open()
	byKey, _ := r.ask(r.admin, "GET", "/api/v1/agents/pages/ui", "").doc["url"].(string)
	pages := r.pages(at) + "/index.html"
	const call = `{"tool":"echo"}`
	if a := r.ask("", "POST", at, call); a.status != 200 {
		t.Fatalf("before the person signed out, a call returned %d: %s", a.status, a.body)
	}
	_, home := leaves.page("/")
	if got := leaves.status("POST", "/logout", url.Values{"token": {formToken.FindStringSubmatch(home)[1]}}.Encode()); got != 200 {
		t.Fatalf("signing out: %d", got)
	}
	for _, path := range []string{at, pages} {
		if resp, _ := r.get(path, nil); resp.StatusCode != 404 {
			t.Errorf("after the person signed out, %s returned %d", path, resp.StatusCode)
		}
	}
	if a := r.ask("", "POST", at, call); a.status != 404 {
		t.Errorf("after the person signed out, a call returned %d", a.status)
	}
	for _, path := range []string{other, byKey} {
		if a := r.ask("", "POST", path, call); a.status != 200 {
			t.Errorf("a call with another ticket: %d %s", a.status, a.body)
		}
	}
	end := time.Now().Add(uiTime / 2)
	if _, until := r.frameAddress("pages", &identity.Principal{}, "id", end); !until.Equal(end) {
		t.Errorf("the session ends at %v, but its ticket ends at %v", end, until)
	}
}

// The ticket of a frame allows calls of its agent's tools, on behalf of the principal that requested it, and nothing
// else. The ticket that pages know allows no calls.
func TestUICalls(t *testing.T) {
	r, keys := uiRig(t)
	at, _ := r.ask(r.key(identity.KeySpec{Principal: "ada", Agents: []string{"pages"}}), "GET", "/api/v1/agents/pages/ui", "").doc["url"].(string)
	const call = `{"tool":"echo"}`
	if a := r.ask("", "POST", at, call); a.status != 200 || !strings.Contains(a.body, "pages ada {}") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.ask("", "POST", at, `{"tool":"echo","agent":"plain"}`); a.status != 400 {
		t.Errorf("a call of another agent: %d %s", a.status, a.body)
	}
	earlier := "/ui/" + base64.RawURLEncoding.EncodeToString(keys.Seal(forFrame, []byte(`{"agent":"pages","until":99999999999,"who":{"Kind":"local","KeyID":"x"}}`)))
	for name, path := range map[string]string{"the ticket of the pages": r.pages(at), "a ticket of an earlier daemon": earlier} {
		if a := r.ask("", "POST", path, call); a.status != 404 {
			t.Errorf("a call with %s: %d", name, a.status)
		}
	}
	for _, origin := range []string{"null", "https://elsewhere.example.com"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+at, strings.NewReader(call))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		resp, err := r.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != 403 {
			t.Errorf("a call from the origin %s returned %d", origin, resp.StatusCode)
		}
	}
}

// endless is a file system whose files never end. It counts the bytes that are read before the first byte of the answer
// is sent.
type endless struct{ read, before atomic.Int64 }

func (e *endless) Open(string) (fs.File, error) { return e, nil }
func (e *endless) Stat() (fs.FileInfo, error)   { return fileSize{}, nil }
func (e *endless) Close() error                 { return nil }
func (e *endless) Read(p []byte) (int, error)   { e.read.Add(int64(len(p))); return len(p), nil }
func (e *endless) Header() http.Header          { return http.Header{} }
func (e *endless) WriteHeader(int)              {}
func (e *endless) Write(p []byte) (int, error) {
	e.before.CompareAndSwap(0, e.read.Load())
	return len(p), nil
}

type fileSize struct{ fs.FileInfo }

func (fileSize) Size() int64       { return 1 << 40 }
func (fileSize) Mode() fs.FileMode { return 0 }

// A large file of a page is sent in pieces and is never held in memory as a whole, because any client that knows the
// address can request it.
func TestPagesAreStreamed(t *testing.T) {
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	var file endless
	r := newRig(t, map[string]string{"pages.json": matrix("pages")}, func(_ *rig, o *Options) {
		o.Tickets = keys
		start := o.Start
		o.Start = func(ctx context.Context, name string, m *manifest.Manifest) Running {
			return paged{start(ctx, name, m).(*fake), &file}
		}
	})
	ticket := r.sealTicket(forPages, ticket{Agent: "pages", Until: time.Now().Add(time.Hour).Unix()})
	req := httptest.NewRequest("GET", "/ui/"+ticket+"/big.png", nil)
	req.Host = "127.0.0.1"
	r.Handler().ServeHTTP(&file, req)
	if read, before := file.read.Load(), file.before.Load(); read != maxPage || before == 0 || before > 1<<20 {
		t.Errorf("%d bytes were read, %d of them before the first byte was sent", read, before)
	}
}

// A browser shows pages only in their frame. The frame's policy keeps the pages from navigating to other sites.
func TestPagesOnlyInTheirFrame(t *testing.T) {
	r, _ := uiRig(t)
	at := "/ui/" + r.sealTicket(forPages, ticket{Agent: "pages", Until: time.Now().Add(time.Hour).Unix()}) + "/"
	for _, tt := range []struct {
		file, dest string
		status     int
	}{
		{"", "iframe", 200},
		{"index.html", "iframe", 200},
		{"index.html", "", 200},
		{"app.js", "script", 200},
		{"sub/pic.svg", "image", 200},
		{"", "document", 403},
		{"index.html", "document", 403},
		{"index.html", "object", 403},
		{"index.html", "embed", 403},
		{"sub/pic.svg", "document", 403},
	} {
		header := http.Header{}
		if tt.dest != "" {
			header.Set("Sec-Fetch-Dest", tt.dest)
		}
		if resp, body := r.get(at+tt.file, header); resp.StatusCode != tt.status || tt.status == 403 && !strings.Contains(body, "only in their frame") {
			t.Errorf("%q for %q: %d %s", tt.file, tt.dest, resp.StatusCode, body)
		}
	}
}
