package front

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// web is an agent that is served over HTTP. Its methods act as a client of the agent.
type web struct {
	t     *testing.T
	agent *Agent
	stage *stage
	face  *HTTP
	url   string
}

// who is the name of the header that names the principal of a test request.
const who = "X-Test-Principal"

func serveHTTP(t *testing.T, o HTTPOptions, change ...func(*Agent)) *web {
	t.Helper()
	keys, err := testKeys()
	if err != nil {
		t.Fatal(err)
	}
	o.Keys = keys
	w := &web{t: t, stage: &stage{began: make(chan string, 10), release: make(chan struct{}), gone: make(chan struct{}, 10)}}
	w.agent = testAgent(t, w.stage)
	w.agent.Keys = testKeys
	for _, f := range change {
		f(w.agent)
	}
	w.face = NewHTTP(w.agent, o)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.face.Serve(rw, r, r.Header.Get(who), nil)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(w.face.Close)
	w.url = server.URL
	return w
}

// headerLine is a header to set in a request. An empty value removes the header.
type headerLine struct{ name, value string }

func (w *web) request(method, body string, headers ...headerLine) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set(who, "me@local")
	for _, h := range headers {
		switch {
		case h.name == "Host":
			r.Host = h.value
		case h.value == "":
			r.Header.Del(h.name)
		default:
			r.Header.Set(h.name, h.value)
		}
	}
	return r
}

func (w *web) do(method, body string, headers ...headerLine) *http.Response {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(w.request(method, body, headers...))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// post sends a message and returns the response and its whole body.
func (w *web) post(body string, headers ...headerLine) (*http.Response, string) {
	w.t.Helper()
	resp := w.do(http.MethodPost, body, headers...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(b)
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{},"roots":{}},"clientInfo":{"name":"x","version":"1"}}}`

// session begins a session of the older generation and returns its Mcp-Session-Id header.
func (w *web) session(headers ...headerLine) headerLine {
	w.t.Helper()
	resp, body := w.post(hello, headers...)
	id := resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != 200 || id == "" || !strings.Contains(body, `"protocolVersion":"2025-11-25"`) {
		w.t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return headerLine{"Mcp-Session-Id", id}
}

func calls(id int, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

func TestSessionOverHTTP(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{})
	s := w.session()
	resp, body := w.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, s)
	if resp.StatusCode != http.StatusAccepted || body != "" {
		t.Errorf("a notification got %d %q", resp.StatusCode, body)
	}
	resp, body = w.post(calls(7, "read", `{"big":12345678901234567890}`), s)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a call got %d %s", resp.StatusCode, resp.Header)
	}
	if !strings.Contains(body, `"n": 12345678901234567890.0, "m": 2, "args": {"big":12345678901234567890}`) {
		t.Errorf("the result was changed: %s", body)
	}
	// Another replica accepts the same session.
	other := serveHTTP(t, HTTPOptions{})
	if resp, body := other.post(calls(8, "read", `{}`), s); resp.StatusCode != 200 {
		t.Errorf("another replica answered with %d %s", resp.StatusCode, body)
	}
	if resp := w.do(http.MethodDelete, "", s); resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE got %d", resp.StatusCode)
	}
	if resp, _ := w.post(calls(9, "read", `{}`), s); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a request in an ended session got %d", resp.StatusCode)
	}
}

func TestForeignSessions(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{SessionLife: time.Hour})
	s := w.session()
	changed := []byte(s.value)
	changed[len(changed)/2] ^= 1
	expired := serveHTTP(t, HTTPOptions{SessionLife: -time.Minute}).session()
	otherAgent := serveHTTP(t, HTTPOptions{}, func(a *Agent) {
		other := *a.Gateway.Agent()
		other.ID = "matrix://agent/other"
		a.Gateway = fakeGateway{&other, a.Gateway.(fakeGateway).stage}
	}).session()
	tests := []struct {
		name    string
		headers []headerLine
		status  int
	}{
		{"the session of this client", []headerLine{s}, 200},
		{"none", nil, 400},
		{"changed", []headerLine{{s.name, string(changed)}}, 404},
		{"made up", []headerLine{{s.name, "abc"}}, 404},
		{"very long", []headerLine{{s.name, strings.Repeat("a", maxToken+1)}}, 404},
		{"a session of another principal", []headerLine{s, {who, "you@local"}}, 404},
		{"a session of another agent", []headerLine{otherAgent}, 404},
		{"expired", []headerLine{expired}, 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, method := range []string{http.MethodPost, http.MethodDelete} {
				if method == http.MethodDelete && tt.status == 200 {
					continue
				}
				if resp := w.do(method, calls(2, "read", `{}`), tt.headers...); resp.StatusCode != tt.status {
					t.Errorf("%s got %d, want %d", method, resp.StatusCode, tt.status)
				}
			}
		})
	}
}

func TestForeignRequests(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{Hosts: []string{"ambit.example"}, MaxBody: 1000})
	port := w.url[strings.LastIndex(w.url, ":"):]
	tests := []struct {
		name    string
		method  string
		body    string
		headers []headerLine
		status  int
	}{
		{"valid", "POST", hello, nil, 200},
		{"the name localhost", "POST", hello, []headerLine{{"Host", "localhost" + port}}, 200},
		{"from a page of a known host", "POST", hello, []headerLine{{"Host", "ambit.example"}, {"Origin", "https://ambit.example"}}, 200},
		{"from a local page", "POST", hello, []headerLine{{"Origin", "http://localhost:3000"}}, 200},
		{"from a page of another site", "POST", hello, []headerLine{{"Origin", "http://evil.example"}}, 403},
		{"from a page without an origin", "POST", hello, []headerLine{{"Origin", "null"}}, 403},
		{"a rebound host name", "POST", hello, []headerLine{{"Host", "evil.example" + port}}, 403},
		{"a rebound host name with its origin", "POST", hello, []headerLine{{"Host", "evil.example"}, {"Origin", "http://evil.example"}}, 403},
		{"a host name that looks local", "POST", hello, []headerLine{{"Host", "localhost.evil.example"}}, 403},
		{"a form", "POST", hello, []headerLine{{"Content-Type", "text/plain"}}, 415},
		{"without a type", "POST", hello, []headerLine{{"Content-Type", ""}}, 415},
		{"with a charset", "POST", hello, []headerLine{{"Content-Type", "application/json; charset=utf-8"}}, 200},
		{"a client that accepts only images", "POST", hello, []headerLine{{"Accept", "image/png"}}, 406},
		{"accepts anything", "POST", hello, []headerLine{{"Accept", "*/*"}}, 200},
		{"too large", "POST", `{"x":"` + strings.Repeat("x", 1000) + `"}`, nil, 413},
		{"no JSON", "POST", `{"jsonrpc":`, nil, 400},
		{"a batch", "POST", `[` + hello + `]`, nil, 400},
		{"no message", "POST", `{}`, nil, 400},
		{"another method", "PUT", hello, nil, 405},
		{"a stream without a session", "GET", "", []headerLine{{"Accept", "text/event-stream"}}, 400},
		{"a page", "GET", "", []headerLine{{"Accept", "text/html"}}, 405},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if resp := w.do(tt.method, tt.body, tt.headers...); resp.StatusCode != tt.status {
				t.Errorf("got %d, want %d", resp.StatusCode, tt.status)
			}
		})
	}
}

// events returns the messages of a stream.
func events(body string) (list []string) {
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, strings.TrimSuffix(data, "\n"))
		}
	}
	return list
}

// An answer is a stream only if it has several messages, or if the client prefers a stream.
func TestStreamOrNot(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{})
	s := w.session()
	withToken := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{"progressToken":"mine"}}}`
	last := `{"jsonrpc":"2.0","id":3,"result":{"content":[]}}`
	tests := []struct {
		name, body, accept string
		stream             bool
		events             int
	}{
		{"only a result", calls(3, "work", `{}`), "application/json, text/event-stream", false, 0},
		{"progress", withToken, "application/json, text/event-stream", true, 4},
		{"only a stream", calls(3, "work", `{}`), "text/event-stream", true, 1},
		{"preferably a stream", calls(3, "work", `{}`), "text/event-stream, application/json", true, 1},
		{"progress, but no stream", withToken, "application/json", false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.post(tt.body, s, headerLine{"Accept", tt.accept})
			if is := resp.Header.Get("Content-Type") == "text/event-stream"; is != tt.stream {
				t.Fatalf("the Content-Type is %s: %s", resp.Header.Get("Content-Type"), body)
			}
			if !tt.stream {
				if body != last {
					t.Errorf("got %s", body)
				}
				return
			}
			got := events(body)
			if len(got) != tt.events || got[len(got)-1] != last {
				t.Errorf("got %q", got)
			}
			if tt.events > 1 && !strings.Contains(got[0], `"progressToken":"mine", "progress": 1.50`) {
				t.Errorf("the progress notification is %s", got[0])
			}
		})
	}
}

func TestCancelOverHTTP(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{})
	t.Run("by a notification, in the older generation", func(t *testing.T) {
		s := w.session()
		answered := make(chan int, 1)
		go func() {
			resp, err := http.DefaultClient.Do(w.request("POST", calls(5, "wait", `{}`), s))
			if err != nil {
				answered <- 0
				return
			}
			resp.Body.Close()
			answered <- resp.StatusCode
		}()
		<-w.stage.began
		// Another session cannot cancel the call.
		other := w.session()
		w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, other)
		if len(w.stage.gone) > 0 {
			t.Error("another session cancelled the call")
		}
		w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, s)
		<-w.stage.gone
		if status := <-answered; status != http.StatusAccepted {
			t.Errorf("the cancelled call got the status %d, want %d", status, http.StatusAccepted)
		}
	})
	t.Run("by disconnecting, in the newer generation", func(t *testing.T) {
		r := w.request("POST", newer("tools/call", `"name":"wait","arguments":{}`), newerHeaders("tools/call", "wait")...)
		ctx, hangUp := contextWithCancel(t)
		answered := make(chan error, 1)
		go func() {
			resp, err := http.DefaultClient.Do(r.WithContext(ctx))
			if err == nil {
				resp.Body.Close()
			}
			answered <- err
		}()
		<-w.stage.began
		hangUp()
		<-w.stage.gone
		if err := <-answered; err == nil {
			t.Error("the cancelled call was answered")
		}
	})
}

// newer returns a request of the newer generation.
func newer(method, params string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":"n","method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
}

func newerHeaders(method, name string) []headerLine {
	list := []headerLine{{"Mcp-Protocol-Version", "2026-07-28"}, {"Mcp-Method", method}}
	if name != "" {
		list = append(list, headerLine{"Mcp-Name", name})
	}
	return list
}

func TestNewerGenerationOverHTTP(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{}, func(a *Agent) {
		plain := a.Definition
		a.Definition = func(t *agentTool) []byte {
			if t.Name == "fail" {
				return []byte(`{"name":"fail","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`)
			}
			return plain(t)
		}
	})
	tests := []struct {
		name    string
		body    string
		headers []headerLine
		status  int
		code    int // 0 means a result instead of an error
	}{
		{"discover", newer("server/discover", ""), newerHeaders("server/discover", ""), 200, 0},
		{"a list", newer("tools/list", ""), newerHeaders("tools/list", ""), 200, 0},
		{"a call", newer("tools/call", `"name":"read","arguments":{}`), newerHeaders("tools/call", "read"), 200, 0},
		{"a name in base64", newer("tools/call", `"name":"read","arguments":{}`), newerHeaders("tools/call", "=?base64?cmVhZA==?="), 200, 0},
		{"without Mcp-Method", newer("tools/list", ""), newerHeaders("tools/list", "")[:1], 400, headerMismatch},
		{"with another method in the header", newer("tools/list", ""), newerHeaders("tools/call", ""), 400, headerMismatch},
		{"without Mcp-Name", newer("tools/call", `"name":"read"`), newerHeaders("tools/call", ""), 400, headerMismatch},
		{"with another name in the header", newer("tools/call", `"name":"read"`), newerHeaders("tools/call", "fail"), 400, headerMismatch},
		{"with an argument in a header", newer("tools/call", `"name":"fail","arguments":{"region":"eu"}`), append(newerHeaders("tools/call", "fail"), headerLine{"Mcp-Param-Region", "eu"}), 200, 0},
		{"with another argument in the header", newer("tools/call", `"name":"fail","arguments":{"region":"eu"}`), append(newerHeaders("tools/call", "fail"), headerLine{"Mcp-Param-Region", "us"}), 400, headerMismatch},
		{"without the argument in the header", newer("tools/call", `"name":"fail","arguments":{"region":"eu"}`), newerHeaders("tools/call", "fail"), 400, headerMismatch},
		{"without a version header", newer("tools/list", ""), newerHeaders("tools/list", "")[1:], 400, headerMismatch},
		{"of an unknown newer revision", strings.Replace(newer("tools/list", ""), newerRevision, "2031-01-01", 1), []headerLine{{"Mcp-Protocol-Version", "2031-01-01"}, {"Mcp-Method", "tools/list"}}, 400, unsupportedVersion},
		{"without _meta", `{"jsonrpc":"2.0","id":"n","method":"tools/list"}`, newerHeaders("tools/list", ""), 400, invalidParams},
		{"an unknown tool", newer("tools/call", `"name":"reed","arguments":{}`), newerHeaders("tools/call", "reed"), 400, invalidParams},
		{"a method of the older generation", newer("ping", ""), newerHeaders("ping", ""), 404, methodNotFound},
		{"a method that is not exposed", newer("resources/list", ""), newerHeaders("resources/list", ""), 404, methodNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.post(tt.body, tt.headers...)
			var answer struct {
				ID     string
				Result jsontext.Value
				Error  struct{ Code int }
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if resp.StatusCode != tt.status || answer.Error.Code != tt.code || answer.ID != "n" {
				t.Errorf("got %d %s, want %d and code %d", resp.StatusCode, body, tt.status, tt.code)
			}
			if tt.code == 0 && string(lookup(answer.Result, "resultType")) != `"complete"` {
				t.Errorf("the result has no resultType \"complete\": %s", answer.Result)
			}
			if resp.Header.Get("Mcp-Session-Id") != "" {
				t.Error("the request began a session")
			}
		})
	}
}

// A request with two values of a header that ambit compares is refused, because a proxy may read the other value.
func TestTwoHeaders(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{}, func(*Agent) {})
	for _, name := range []string{"Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"} {
		r := w.request(http.MethodPost, newer("tools/call", `"name":"read","arguments":{}`), newerHeaders("tools/call", "read")...)
		r.Header.Add(name, "other")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("with two %s headers, the status is %d", name, resp.StatusCode)
		}
	}
}

// stream returns a function that reads the next message of an open stream.
func stream(t *testing.T, body io.Reader) func() string {
	lines := bufio.NewScanner(body)
	return func() string {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return ""
	}
}

func TestToolsChanged(t *testing.T) {
	t.Run("in the older generation", func(t *testing.T) {
		w := serveHTTP(t, HTTPOptions{})
		resp := w.do("GET", "", w.session(), headerLine{"Accept", "text/event-stream"})
		w.agent.Publish("notifications/resources/updated", jsontext.Value(`{"uri":"x"}`)) // not watched
		w.agent.Publish("notifications/tools/list_changed", nil)
		if got := stream(t, resp.Body)(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}` {
			t.Error(got)
		}
	})
	t.Run("in the newer generation", func(t *testing.T) {
		w := serveHTTP(t, HTTPOptions{})
		listen := func(filter string) func() string {
			resp := w.do("POST", newer("subscriptions/listen", `"notifications":`+filter), newerHeaders("subscriptions/listen", "")...)
			return stream(t, resp.Body)
		}
		next := listen(`{"toolsListChanged":true,"promptsListChanged":true}`)
		if got := next(); got != `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"n"},"notifications":{"toolsListChanged":true}}}` {
			t.Error(got)
		}
		w.agent.Publish("notifications/prompts/list_changed", nil) // not exposed
		w.agent.Publish("notifications/tools/list_changed", nil)
		if got := next(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"n"}}}` {
			t.Error(got)
		}
	})
}

// A server's question is sent to the client in the stream that answers the call. The client's answer
// reaches the server. The server sees only the exposed capabilities of the client.
func TestAskedOverHTTP(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{})
	offered := make(chan string, 1)
	w.stage.ask = func(c *call.Call) (jsontext.Value, error) {
		offered <- string(c.Client.Capabilities)
		return c.Client.Asker.Ask(t.Context(), "elicitation/create", jsontext.Value(`{"message":"sure?"}`))
	}
	s := w.session()
	resp := w.do("POST", calls(4, "consult", `{}`), s)
	next := stream(t, resp.Body)
	question := next()
	if got := <-offered; got != `{"elicitation":{}}` {
		t.Errorf("the client's capabilities for the server are %s", got)
	}
	if question != `{"jsonrpc":"2.0","id":"ambit-1","method":"elicitation/create","params":{"message":"sure?"}}` {
		t.Fatal(question)
	}
	// Another session's answer is ignored.
	w.post(`{"jsonrpc":"2.0","id":"ambit-1","result":{"action":"decline"}}`, w.session())
	w.post(`{"jsonrpc":"2.0","id":"ambit-1","result":{"action":"accept"}}`, s)
	if got := next(); !strings.Contains(got, `"result":{"content":[],"answer":{"action":"accept"}}`) {
		t.Error(got)
	}
}

func TestIdleSessionIsReleased(t *testing.T) {
	released := make(chan string, 1)
	w := serveHTTP(t, HTTPOptions{Idle: time.Millisecond}, func(a *Agent) { a.Release = func(key string) { released <- key } })
	s := w.session()
	w.post(calls(1, "work", `{}`), s)
	<-released
	// The session is still valid.
	if resp, body := w.post(calls(2, "work", `{}`), s); resp.StatusCode != 200 || !bytes.Contains([]byte(body), []byte(`"result"`)) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	<-released
}

// slowToLeave is a gateway to a server that is slow to answer resources/unsubscribe. It waits until
// the test closes the channel named left.
type slowToLeave struct {
	fakeGateway
	leaving, left chan struct{}
}

func (d slowToLeave) Forward(_ context.Context, f *call.Forward) (jsontext.Value, error) {
	if f.Method == "resources/unsubscribe" {
		close(d.leaving)
		<-d.left
	}
	return jsontext.Value("{}"), nil
}

// A session can be used again while its old state is still being released. The new requests then do
// not use connections of the old state.
func TestSessionIsUsedWhileReleased(t *testing.T) {
	d := slowToLeave{leaving: make(chan struct{}), left: make(chan struct{})}
	released := make(chan string, 10)
	w := serveHTTP(t, HTTPOptions{Idle: time.Millisecond}, func(a *Agent) {
		d.fakeGateway = a.Gateway.(fakeGateway)
		a.Gateway, a.Expose = d, gateway.Exposed{gateway.Resources}
		a.Capabilities = func(alias string) jsontext.Value {
			return map[string]jsontext.Value{"fs": jsontext.Value(`{"resources":{}}`)}[alias]
		}
		a.Release = func(key string) { released <- key }
	})
	w.stage.ask = func(c *call.Call) (jsontext.Value, error) {
		close(d.left)
		if key := <-released; key == c.Client.Key {
			t.Error("the connections of a running call were released")
		}
		return jsontext.Value("{}"), nil
	}
	s := w.session()
	if _, body := w.post(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"fs://a"}}`, s); !strings.Contains(body, `"result":{}`) {
		t.Fatal(body)
	}
	<-d.leaving
	if _, body := w.post(calls(3, "consult", `{}`), s); !strings.Contains(body, `"answer":{}`) {
		t.Error(body)
	}
}

// The number of records of ended sessions is limited. The session that ended last stays ended.
func TestEndedSessionsAreBounded(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{})
	for i := range maxEnded {
		w.face.endedSessions[strconv.Itoa(i)] = time.Now().Add(time.Hour)
	}
	for range 3 {
		s := w.session()
		if resp := w.do(http.MethodDelete, "", s); resp.StatusCode != http.StatusNoContent {
			t.Fatal(resp.StatusCode)
		}
		if resp, _ := w.post(calls(9, "read", `{}`), s); resp.StatusCode != http.StatusNotFound {
			t.Errorf("a request in a session that has just ended got %d", resp.StatusCode)
		}
	}
	if n := len(w.face.endedSessions); n != maxEnded {
		t.Errorf("%d ended sessions are recorded, want %d", n, maxEnded)
	}
}

// The number of sessions of one principal is limited. When a session ends, the principal can open
// another one.
func TestSessionsOfOnePrincipal(t *testing.T) {
	w := serveHTTP(t, HTTPOptions{})
	w.face.most = 3
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	var sessions []headerLine
	for range 3 {
		s := w.session()
		if resp, body := w.post(ping, s); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		sessions = append(sessions, s)
	}
	more := w.session()
	if resp, body := w.post(ping, more); resp.StatusCode != 429 || !strings.Contains(body, "me@local has reached its limit of 3 open sessions with this agent") {
		t.Errorf("a session above the limit: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.post(ping, sessions[0]); resp.StatusCode != 200 {
		t.Errorf("an open session: %d %s", resp.StatusCode, body)
	}
	other := headerLine{who, "you@local"}
	if resp, body := w.post(ping, w.session(other), other); resp.StatusCode != 200 {
		t.Errorf("another principal: %d %s", resp.StatusCode, body)
	}
	if resp := w.do(http.MethodDelete, "", sessions[0]); resp.StatusCode != 204 {
		t.Fatal(resp.StatusCode)
	}
	if resp, body := w.post(ping, more); resp.StatusCode != 200 {
		t.Errorf("after another session had ended, a new session got %d: %s", resp.StatusCode, body)
	}
	w.face.Close()
	if len(w.face.held) != 0 {
		t.Errorf("after Close, sessions are still counted: %v", w.face.held)
	}
}
