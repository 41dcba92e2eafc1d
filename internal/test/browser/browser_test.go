package browser

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ambit-run/ambit/internal/test/output"
)

const spend = `{"campaign":"spring","amount":10.50,"currency":"EUR","reason":"it sold out twice"}`

const rules = `// Agents leave the machine's own files alone.
@id("no-system-files")
forbid (principal, action == Action::"call", resource)
when { context.paths_any_under.contains("/etc") };
`

// TestConsole uses the console like a person. It looks at an agent's permissions, sets a credential and
// makes a call. Then it approves a call from another process and reads the journal.
func TestConsole(t *testing.T) {
	d := start(t, map[string]string{"home/policy.cedar": rules})
	b := d.browse(t)
	b.mu.Lock()
	b.expected = "status of 404" // the browser reports this for the page that does not exist
	b.mu.Unlock()
	b.signIn()
	b.text("#agents .sum", "4 agents · 1 failed · 1 rejected")
	b.text(".card:nth-child(3)", "GA Report Builder") // agents with problems come first
	b.text(".card.rejected", "wrong")
	b.look("agents")

	// This agent has an invalid manifest, so its page shows diagnostics.
	b.open("/agents/wrong")
	b.text(".problem.error", "reed")
	b.text(".problem.error pre", "allowed_side_effects")
	b.look("rejected")

	// This is the page of one agent.
	b.do(chromedp.Navigate(d.url+b.home+"/"), chromedp.WaitVisible(chromedp.CSS("#agents")), chromedp.Click(chromedp.CSS(`a[href$="/agents/report"]`)))
	b.text("h1", "GA Report Builder")
	b.text("#servers .tools", "increase_campaign_budget")
	b.text("#connect + .facts", "/mcp/report")
	b.text("#connect + .facts", "ambit install")
	b.text("main", "api.example.com")
	b.text(".slot", "not set")

	// A tool without its credential refuses and shows the fix.
	b.do(chromedp.Click(chromedp.CSS(`a[href$="/agents/report/tools/get_traffic_summary"]`)), chromedp.WaitVisible(chromedp.CSS("#arg-range")),
		chromedp.SendKeys(chromedp.CSS("#arg-range"), "last-7-days"), chromedp.Click(chromedp.CSS("button.primary")))
	b.text(".outcome", "credential_missing")

	b.open("/agents/report")
	b.do(chromedp.SendKeys(chromedp.CSS("#slot-analytics_token"), "a-token-for-the-test-only"), chromedp.Click(chromedp.CSS(".slot button")))
	b.text(".slot summary", "Replace")
	b.text("#calls", "credential_missing")
	b.look("agent")

	// The page shows warnings, and what the agent may never do.
	b.open("/agents/loose")
	b.text(".watch", "run shell commands")
	b.text(".watch", "server away runs outside ambit")
	b.text(".facts", "not callable:")
	b.text("#servers .server.not h3", "away")
	b.look("watch")

	// The page shows the requested scopes, and whether they are granted.
	b.open("/agents/researcher")
	b.text("#needs + .server", "not granted")
	b.text(".facts", "Side effects")
	b.text(".facts", "npx") // the page lists the programs that the agent's servers run
	b.text("#servers .tools", "not callable")
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
	b.look("approvals-none")
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
	b.text(".approval .facts", "POST to api.example.com")
	b.text(".approval .facts", "a day")
	b.look("approvals")
	b.phone(func() {
		sizes := ask[[]float64](b, `['.yes', '.no'].map((s) => document.querySelector(s).getBoundingClientRect()).flatMap((r) => [r.width, r.height])`)
		if sizes[0] != sizes[2] || sizes[1] != sizes[3] || sizes[1] < 44 {
			t.Errorf("on a phone, the buttons have the sizes %v; want equal buttons that are at least 44 high", sizes)
		}
	})

	// Use only the keyboard: Tab moves from the reason to the next button.
	b.do(chromedp.Focus(chromedp.CSS(".approval input[name=reason]")), chromedp.SendKeys(chromedp.CSS(".approval input[name=reason]"), "fine"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.text("#approvals", "No calls are waiting")
	b.text(".done", "You approved increase_campaign_budget of report")
	b.look("approved")
	if err := <-ended; err != nil {
		t.Errorf("the call ended with %v: %s", err, printed.String())
	}

	// The journal shows all calls and has filters.
	b.open("/journal")
	b.text("#records", "increase_campaign_budget")
	b.text("#records h2", "UTC")
	b.look("journal")
	b.phone(func() { b.until(`!document.querySelector('.filters form').checkVisibility()`) })
	b.until(`document.querySelector('.filters form').checkVisibility()`)
	b.do(chromedp.SetValue(chromedp.CSS("select[name=decision]"), "deny"), chromedp.Click(chromedp.CSS(".filter button")))
	b.until(`location.search.includes('decision=deny') && document.querySelector('.records')?.textContent.includes('credential_missing') && !document.querySelector('.records').textContent.includes('allow')`)
	b.do(chromedp.Click(chromedp.CSS(".records li:last-child .time")))
	b.text("h1", "was refused get_traffic_summary of report")
	b.text("main", "in the journal")
	b.look("record")

	// The journal updates by itself.
	b.open("/journal?code=unknown_tool")
	b.text("#records", "No records")
	b.look("journal-none")
	_ = d.command("call", d.agentPath(), "no_such_tool").Run() // the call is refused, which the journal records
	b.text("#records", "unknown_tool")

	b.open("/activity")
	b.text("#charts", "Latency of calls")
	b.text("#charts .sum", "last 24 hours; times are in UTC")
	b.do(chromedp.Click(chromedp.CSS(`.tabs a[href$="period=1h"]`)))
	b.text("#charts .sum", "last hour")
	b.look("activity")
	b.open("/policy?agent=report&tool=increase_campaign_budget")
	b.text(".verdict", "depending on the arguments, the call would be allowed after a person approves it")
	b.text(".reasons", "a person must approve the call first")
	// The answer is the same as that of the command.
	for _, input := range []string{"", "{}", `{"range":"last-7-days"}`} {
		why := d.command("why", d.agentPath(), "get_traffic_summary")
		if input != "" {
			why.Args = append(why.Args, "--input", input)
		}
		out, _ := why.Output() // the command fails if the answer is no
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		b.open("/policy?agent=report&tool=get_traffic_summary&input=" + url.QueryEscape(input))
		if got, want := ask[string](b, `document.querySelector('.verdict').textContent.trim()`), lines[len(lines)-1]; got != want {
			t.Errorf("with the arguments %q, the console answers %q and the command %q", input, got, want)
		}
	}
	b.do(chromedp.SetValue(chromedp.CSS("select[name=agent]"), "loose"))
	b.text("#tools", "run")
	b.text(".code li:nth-child(2)", "no-system-files")
	b.until(`!document.querySelector('.verdict')`) // the verdict was about another agent
	b.look("policy")
	b.open("/")
	b.text(".card", "last call")
	b.open("/queue")
	b.text("h1", "Queue")
	b.look("queue")
	b.open("/agents/report/tools/nothing")
	b.text("h1", "has no tool")
	b.look("error")
	b.do(chromedp.Click(chromedp.CSS("form.who button")))
	b.text("h1", "Sign in")
	b.look("login")
}

// TestOperatorInTheConsole checks that an agent's page shows what the operator decides, not only what the manifest says.
func TestOperatorInTheConsole(t *testing.T) {
	b := start(t, map[string]string{
		"home/guardrails.json": `{"approval": {"tools": ["get_traffic_summary"]}}`,
		"home/policy.cedar":    `forbid (principal == Agent::"report", action, resource) when { resource.name == "increase_campaign_budget" };`,
	}).browse(t)
	b.signIn()
	b.open("/agents/report")
	tool := func(name string) string {
		return ask[string](b, `[...document.querySelectorAll('#servers .tools li p')].find((p) => p.textContent.includes('`+name+`'))?.textContent ?? ''`)
	}
	if got := tool("get_traffic_summary"); !strings.Contains(got, "needs approval") {
		t.Errorf("the operator requires approval, but the page shows %q", got)
	}
	if got := tool("increase_campaign_budget"); !strings.Contains(got, "not callable") {
		t.Errorf("the policy denies every call, but the page shows %q", got)
	}
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
		{"GET", "/journal", good, nil, 401}, // the request has the cookie without the address of the session
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
	ask[bool](b, `location.assign("`+other.URL+`/") === undefined`) // navigate as if the person followed a link in the console
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
		t.Error("the daemon's log contains the address of the session")
	}
}
