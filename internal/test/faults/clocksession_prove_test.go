//go:build linux && prove

package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// speak sends an MCP message to the agent. If session is not empty, the message belongs to that session. Other
// goroutines can call speak.
func (d *daemon) speak(session, method, params string) (status int, id, text string, err error) {
	req, err := http.NewRequestWithContext(d.h.t.Context(), "POST", d.url+"/mcp/till", strings.NewReader(
		fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		return 0, "", "", err
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + d.key}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Mcp-Session-Id"), string(body), err
}

// begin starts a session.
func (d *daemon) begin() string {
	d.h.t.Helper()
	status, id, text, err := d.speak("", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
	if err != nil || status != 200 || id == "" {
		d.h.t.Fatalf("starting a session: got status %d: %s, %v", status, text, err)
	}
	return id
}

// testJumpAndSession checks that a client's session expires with an error that describes the fix. A call in
// progress during the jump must be answered once.
func testJumpAndSession(t *testing.T, c *clocked, jump int) {
	d := c.serve()
	session := d.begin()
	type reply struct {
		status int
		text   string
		err    error
	}
	got := make(chan reply, 1)
	go func() {
		status, _, text, err := d.speak(session, "tools/call", `{"name":"pay","arguments":{}}`)
		got <- reply{status, text, err}
	}()
	c.until("the call has its effect", func() bool { return c.done() == 1 })
	c.set(jump)
	c.open()
	if s := <-got; s.err != nil || s.status != 200 || !strings.Contains(s.text, "paid") {
		t.Errorf("the call returned %+v", s)
	}
	for _, at := range []int{jump, 0} {
		c.set(at)
		status, _, text, err := d.speak(session, "tools/call", `{"name":"look","arguments":{}}`)
		good := err == nil && status == 200 && strings.Contains(text, "seen")
		over := err == nil && status == 404 && strings.Contains(text, "the session is unknown or has ended")
		if at <= 0 && !good || at > 0 && !over {
			t.Errorf("%d s from now: got status %d: %s, %v", at, status, text, err)
		}
		if fresh := d.begin(); fresh == session {
			t.Error("two sessions have the same id")
		}
	}
	if n := c.done(); n != 1 {
		t.Errorf("one call had %d effects", n)
	}
	c.whole()
}

// browser is a browser that signs in to the console.
type browser struct {
	d *daemon
	*http.Client
}

func (d *daemon) browser() browser {
	d.h.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.h.t.Fatal(err)
	}
	return browser{d, &http.Client{Jar: jar}}
}

// link requests a link to the console and returns its ticket.
func (d *daemon) link() string {
	d.h.t.Helper()
	a, err := d.send("POST", "/api/v1/console", "")
	var doc struct{ URL string }
	if err == nil {
		err = json.Unmarshal([]byte(a.text), &doc)
	}
	link, bad := url.Parse(doc.URL)
	if err != nil || bad != nil || link.Query().Get("ticket") == "" {
		d.h.t.Fatalf("requesting a link: got %s, %v", a.text, err)
	}
	return link.Query().Get("ticket")
}

// post sends a form and returns the status and the page of the response.
func (b browser) post(path string, form url.Values) (status int, page string) {
	b.d.h.t.Helper()
	resp, err := b.PostForm(b.d.url+path, form)
	return b.read(resp, err)
}

func (b browser) get(path string) (status int, page string) {
	b.d.h.t.Helper()
	resp, err := b.Get(b.d.url + path)
	return b.read(resp, err)
}

func (b browser) read(resp *http.Response, err error) (status int, page string) {
	b.d.h.t.Helper()
	if err != nil {
		b.d.h.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.d.h.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

var (
	formToken = regexp.MustCompile(`name="token" value="([^"]+)"`)
	// homePath matches the address of a session's pages.
	homePath = regexp.MustCompile(`<a class="mark" href="([^"]+)"`)
)

// testJumpAndConsole checks that a console session has expired a day later, but has not expired a day earlier. A used
// link must stay invalid.
func testJumpAndConsole(t *testing.T, c *clocked, jump int) {
	d := c.serve()
	used, unused := d.link(), d.link()
	person, left := d.browser(), d.browser()
	homes := map[browser]string{}
	for b, ticket := range map[browser]string{person: used, left: d.link()} {
		status, page := b.post("/login", url.Values{"ticket": {ticket}})
		home := homePath.FindStringSubmatch(page)
		if status != 200 || home == nil {
			t.Fatalf("signing in returned status %d: %s", status, page)
		}
		homes[b] = home[1]
	}
	// One of the two browsers signs out, but an attacker has copied its cookie and address.
	_, page := left.get(homes[left])
	token := formToken.FindStringSubmatch(page)
	at, err := url.Parse(d.url + homes[left])
	if token == nil || err != nil {
		t.Fatalf("the page contains no form: %v", err)
	}
	thief := d.browser()
	thief.Jar.SetCookies(at, left.Jar.Cookies(at))
	if status, page := left.post(homes[left]+"logout", url.Values{"token": {token[1]}}); status != 200 {
		t.Fatalf("signing out returned status %d: %s", status, page)
	}

	for _, at := range []int{jump, 0} {
		c.set(at)
		want := 200
		if at > 0 {
			want = 401
		}
		if status, page := person.get(homes[person]); status != want || !strings.Contains(page, map[int]string{200: "till", 401: "Sign in"}[want]) {
			t.Errorf("with the clock moved by %d s, a page of the session returned status %d: %s", at, status, page)
		}
		if status, page := d.browser().post("/login", url.Values{"ticket": {d.link()}}); status != 200 {
			t.Errorf("with the clock moved by %d s, a new link returned status %d: %s", at, status, page)
		}
		if status, page := d.browser().post("/login", url.Values{"ticket": {used}}); status != 403 || !strings.Contains(page, "has already been used, has expired") {
			t.Errorf("with the clock moved by %d s, a used link returned status %d: %s", at, status, page)
		}
		if status, _ := thief.get(homes[left]); status != 401 {
			t.Errorf("with the clock moved by %d s, a request with the copied cookie returned status %d", at, status)
		}
	}
	if status, page := d.browser().post("/login", url.Values{"ticket": {unused}}); status != 200 {
		t.Errorf("signing in with an unused link returned status %d: %s", status, page)
	}
}
