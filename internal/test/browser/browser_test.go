package browser

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ambit-run/ambit/internal/test/output"
)

const spend = `{"campaign":"spring","amount":10.50,"currency":"EUR","reason":"it sold out twice"}`

// TestConsole uses the console like a person. It looks at an agent's permissions, sets a credential and
// makes a call. Then it approves a call from another process and reads the journal.
func TestConsole(t *testing.T) {
	d := start(t, nil)
	b := d.browse(t)
	b.signIn()
	b.text("#agents", "GA Report Builder")
	b.text(".card.rejected", "wrong")
	b.look("agents")

	// An invalid manifest, with its diagnostics.
	b.open("/agents/wrong")
	b.text(".problem.error", "reed")
	b.text(".problem.error pre", "allowed_side_effects")
	b.look("rejected")

	// The page of one agent.
	b.do(chromedp.Navigate(d.url+b.home+"/"), chromedp.WaitVisible(chromedp.CSS("#agents")), chromedp.Click(chromedp.CSS(`a[href$="/agents/report"]`)))
	b.text("h1", "GA Report Builder")
	b.text("table", "increase_campaign_budget")
	b.text("#servers", "")
	b.text("main", "api.example.com")
	b.text(".slot", "not set")

	// A tool without its credential refuses and shows the fix.
	b.do(chromedp.Click(chromedp.CSS(`a[href$="/agents/report/tools/get_traffic_summary"]`)), chromedp.WaitVisible(chromedp.CSS("#arg-range")),
		chromedp.SendKeys(chromedp.CSS("#arg-range"), "last-7-days"), chromedp.Click(chromedp.CSS("button.primary")))
	b.text(".outcome", "credential_missing")

	b.open("/agents/report")
	b.do(chromedp.SendKeys(chromedp.CSS("#slot-analytics_token"), "a-token-for-the-test-only"), chromedp.Click(chromedp.CSS(".slot button")))
	b.text(".slot .state", "set")
	b.look("agent")

	// Warnings, and what the agent may never do.
	b.open("/agents/loose")
	b.text(".watch", "run shell commands")
	b.text(".watch", "server away runs on another machine")
	b.text(".facts", "never:")
	b.look("watch")

	// Requested scopes, and whether they are granted.
	b.open("/agents/researcher")
	b.text("#needs + .server", "not granted")
	b.text(".facts", "Side effects")
	b.look("needs")

	b.open("/agents/report/tools/get_traffic_summary")
	b.do(chromedp.SendKeys(chromedp.CSS("#arg-range"), "last-7-days"), chromedp.Click(chromedp.CSS("button.primary")))
	b.text(".outcome", `"visits": 4711`)
	b.text(".outcome", "<b>not markup</b>") // a service's response stays text
	b.look("tool")

	// The gateway refuses a form with invalid values.
	b.open("/agents/report/tools/get_traffic_summary")
	b.do(chromedp.SendKeys(chromedp.CSS("#arg-range"), "everything"), chromedp.Click(chromedp.CSS("button.primary")))
	b.text(".outcome", "input_invalid")

	// Another process waits for approval, and the page updates by itself.
	b.open("/approvals")
	b.text("#approvals", "No calls are waiting")
	other := d.command("call", d.agentPath(), "increase_campaign_budget", "--input", spend, "--json")
	var printed output.Buffer
	other.Stdout, other.Stderr = &printed, &printed
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	b.text("#approvals", "increase_campaign_budget")
	b.text("#approvals pre", `"amount": 10.50`)
	b.text("#waiting", "1")
	b.look("approvals")

	// Use only the keyboard: Tab moves from the reason to the next button.
	b.do(chromedp.Focus(chromedp.CSS(".approval input[name=reason]")), chromedp.SendKeys(chromedp.CSS(".approval input[name=reason]"), "fine"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.text("#approvals", "No calls are waiting")
	if err := <-ended; err != nil {
		t.Errorf("the call ended with %v: %s", err, printed.String())
	}

	// The journal shows all calls and has filters.
	b.open("/journal")
	b.text("#records", "increase_campaign_budget")
	b.look("journal")
	b.do(chromedp.SetValue(chromedp.CSS("select[name=decision]"), "deny"), chromedp.Click(chromedp.CSS(".filter button")))
	b.until(`location.search.includes('decision=deny') && document.querySelector('#records tbody')?.textContent.includes('credential_missing') && !document.querySelector('#records tbody').textContent.includes('allow')`)
	b.do(chromedp.Click(chromedp.CSS("#records tbody tr td a")))
	b.text("main", "in the journal")
	b.look("record")

	// The journal updates by itself.
	b.open("/journal?code=unknown_tool")
	b.text("#records", "No records")
	_ = d.command("call", d.agentPath(), "no_such_tool").Run() // the call is refused, which the journal records
	b.text("#records", "unknown_tool")

	b.open("/activity")
	b.text("#charts", "Latency of calls")
	b.look("activity")
	b.open("/policy?agent=report&tool=increase_campaign_budget")
	b.text(".verdict", "yes")
	b.text(".reasons", "a person must approve the call first")
	b.look("policy")
	b.open("/queue")
	b.text("h1", "Queue")
	b.look("queue")
}

// TestKeyboard moves through the page with the Tab key alone.
func TestKeyboard(t *testing.T) {
	b := start(t, nil).browse(t)
	b.signIn()
	var seen []string
	for range 9 {
		b.do(chromedp.KeyEvent(kb.Tab))
		seen = append(seen, ask[string](b, `document.activeElement.textContent.trim() + '|' + (getComputedStyle(document.activeElement).outlineStyle !== 'none')`))
	}
	all := strings.Join(seen, "\n")
	for _, want := range []string{"Skip to content|true", "ambit|true", "Agents|true", "Approvals|true", "Journal|true", "Activity|true", "Queue|true", "Policy|true", "Sign out|true"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q cannot be reached, or is not shown as focused:\n%s", want, all)
		}
	}
	b.do(chromedp.Focus(chromedp.CSS(`nav a[href$="/journal"]`)), chromedp.KeyEvent(kb.Enter))
	b.text("h1", "Journal")
}

// TestAccessToTheConsole checks who can open the console.
func TestAccessToTheConsole(t *testing.T) {
	d := start(t, nil)
	b := d.browse(t)
	b.signIn()
	cookies := must(b, network.GetCookies, network.GetCookiesParams{}).Cookies
	if len(cookies) != 1 || !cookies[0].HTTPOnly || cookies[0].SameSite != network.CookieSameSiteStrict || cookies[0].Path != b.home+"/" {
		t.Errorf("got the cookies %+v, want one strict, HTTP-only cookie", cookies)
	}
	// The link must not work twice.
	again, err := http.PostForm(d.url+"/login", map[string][]string{"ticket": {strings.TrimPrefix(d.link, d.url+"/login?ticket=")}})
	if err != nil || again.StatusCode != http.StatusForbidden {
		t.Errorf("using the link again: got %v, error %v; want status 403", again, err)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask := func(method, path, cookie string, header ...string) int {
		t.Helper()
		r, err := http.NewRequest(method, d.url+path, strings.NewReader("decision=approve"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: "ambit_console", Value: cookie})
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s has no content security policy", path)
		}
		return resp.StatusCode
	}
	good := cookies[0].Value
	for _, tt := range []struct {
		method, path, cookie string
		header               []string
		want                 int
	}{
		{"GET", "/", "", nil, 401},
		{"GET", "/journal", good, nil, 401}, // the cookie without the address of the session
		{"GET", "/console/x/journal", good, nil, 401},
		{"GET", b.home + "/", "", nil, 401},
		{"GET", b.home + "/agents/report", "", nil, 401},
		{"GET", b.home + "/live", "", nil, 401},
		{"GET", b.home + "/journal", good[:len(good)-2] + "AA", nil, 401},
		{"GET", b.home + "/journal", good, nil, 200},
		{"POST", b.home + "/approvals/x", "", nil, 401},
		{"POST", b.home + "/approvals/x", good, nil, 403}, // without the token
		{"POST", b.home + "/approvals/x", good, []string{"Origin", "https://evil.example"}, 403},
	} {
		if got := ask(tt.method, tt.path, tt.cookie, tt.header...); got != tt.want {
			t.Errorf("%s %s %v: got status %d, want %d", tt.method, tt.path, tt.header, got, tt.want)
		}
	}
	b.do(chromedp.Click(chromedp.CSS("form.who button")))
	b.text("h1", "Sign in")
	if got := ask("GET", b.home+"/journal", good); got != 401 {
		t.Errorf("reading the journal after signing out: got status %d, want 401", got)
	}
}

// TestOtherPorts opens a page on another port of the same host. A browser sends cookies to all ports of a
// host. But it must not send the console's cookie to the other port.
func TestOtherPorts(t *testing.T) {
	paths := []string{"/again", "/console", "/console/", "/console/x", "/login", "/journal"}
	list, err := json.Marshal(paths)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	came := map[string]http.Header{}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		came[r.URL.Path] = r.Header
		http.SetCookie(w, &http.Cookie{Name: "theirs", Value: "yes", Path: "/"})
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<h1>Hello</h1><script>
Promise.all(` + string(list) + `.map((path) => fetch(path).then((answer) => answer.text()))).then(() => { document.querySelector('h1').textContent = 'All came' })
</script>`))
	}))
	t.Cleanup(other.Close)
	d := start(t, nil)
	b := d.browse(t)
	b.signIn()
	ask[bool](b, `location.assign("`+other.URL+`/") === undefined`) // like following a link in the console
	b.text("h1", "All came")
	mu.Lock()
	for _, path := range append(paths, "/") {
		h, ok := came[path]
		if !ok || path != "/" && !strings.Contains(h.Get("Cookie"), "theirs=yes") {
			t.Errorf("the request for %s has no cookies, so the test checked nothing: %v", path, h)
		}
		for name, values := range h {
			if text := strings.Join(values, " "); strings.Contains(text, "ambit_console") || strings.Contains(text, b.home) {
				t.Errorf("%s was sent %s: %s", path, name, text)
			}
		}
	}
	mu.Unlock()
	if got := ask[string](b, `document.referrer`); strings.Contains(got, b.home) {
		t.Errorf("the other page got the session's address as its referrer: %s", got)
	}
	// The session still works.
	b.open("/journal")
	b.text("h1", "Journal")
	if strings.Contains(d.printed.String(), b.home) {
		t.Error("the daemon's log contains the session's address")
	}
}
