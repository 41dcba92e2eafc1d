package mcpwire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNegotiate(t *testing.T) {
	initialize := func(f *fake, result string) {
		f.answer(f.expect(methodInitialize), result)
		f.idle()
	}
	for _, tc := range []struct {
		name    string
		options Options
		server  func(*fake)
		version string
		errors  []any
		within  time.Duration // the expected duration, in fake time
	}{
		{
			name:    "modern",
			server:  func(f *fake) { f.answer(f.expect(methodDiscover), discoverResult); f.idle() },
			version: "2026-07-28",
		},
		{
			name:    "legacy refuses",
			server:  func(f *fake) { f.greetLegacy(); f.idle() },
			version: "2025-11-25",
		},
		{
			name: "legacy refuses with another error",
			server: func(f *fake) {
				f.refuse(f.expect(methodDiscover), -32602, "Invalid request parameters")
				initialize(f, strings.Replace(initializeResult, "2025-11-25", "2024-11-05", 1))
			},
			version: "2024-11-05",
		},
		{
			name: "silent",
			server: func(f *fake) {
				f.expect(methodDiscover)
				initialize(f, initializeResult)
			},
			version: "2025-11-25", within: 2 * time.Second,
		},
		{
			name:    "silent, with a custom probe timeout",
			options: Options{ProbeTimeout: 100 * time.Millisecond},
			server: func(f *fake) {
				f.expect(methodDiscover)
				initialize(f, initializeResult)
			},
			version: "2025-11-25", within: 100 * time.Millisecond,
		},
		{
			name: "answers late",
			server: func(f *fake) {
				late := f.expect(methodDiscover)
				m := f.expect(methodInitialize)
				f.answer(late, discoverResult)
				f.answer(m, initializeResult)
				f.answer(late, discoverResult)
				f.idle()
			},
			version: "2025-11-25", within: 2 * time.Second,
		},
		{
			name:   "exits",
			server: func(f *fake) { f.expect(methodDiscover); f.exit() },
			errors: []any{ErrRespawnLegacy, ErrClosed},
		},
		{
			name: "exits later",
			server: func(f *fake) {
				f.refuse(f.expect(methodDiscover), -32600, "not initialized")
				f.expect(methodInitialize)
				f.exit()
			},
			errors: []any{ErrRespawnLegacy, ErrClosed},
		},
		{
			name:   "is silent forever",
			server: (*fake).idle,
			errors: []any{ErrRespawnLegacy, context.DeadlineExceeded}, within: time.Minute,
		},
		{
			name:    "only legacy is allowed",
			options: Options{Legacy: true},
			server:  func(f *fake) { initialize(f, initializeResult) },
			version: "2025-11-25",
		},
		{
			name:    "exits without a probe",
			options: Options{Legacy: true},
			server:  func(f *fake) { f.expect(methodInitialize); f.exit() },
			errors:  []any{ErrClosed},
		},
		{
			name:    "only modern is allowed",
			options: Options{Modern: true},
			server:  func(f *fake) { f.refuse(f.expect(methodDiscover), -32601, "Method not found"); f.idle() },
			errors:  []any{new(*RPCError)},
		},
		{
			name:    "only modern is allowed, and the server is legacy",
			options: Options{Modern: true},
			server: func(f *fake) {
				f.answer(f.expect(methodDiscover), `{"supportedVersions":["2025-11-25"]}`)
				f.idle()
			},
			errors: []any{new(*VersionError)},
		},
		{
			name: "discovers only legacy versions",
			server: func(f *fake) {
				f.answer(f.expect(methodDiscover), `{"supportedVersions":["2025-06-18"]}`)
				initialize(f, strings.Replace(initializeResult, "2025-11-25", "2025-06-18", 1))
			},
			version: "2025-06-18",
		},
		{
			name: "names its versions in an error",
			server: func(f *fake) {
				m := f.expect(methodDiscover)
				f.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32022,"message":"x","data":{"supported":["2025-11-25"]}}}`)
				initialize(f, initializeResult)
			},
			version: "2025-11-25",
		},
		{
			name: "refuses the revision once, but lists it",
			server: func(f *fake) {
				f.say(`{"jsonrpc":"2.0","id":` + string(f.expect(methodDiscover).ID) + `,"error":{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}}`)
				f.answer(f.expect(methodDiscover), `{"supportedVersions":["2026-07-28"]}`)
			},
			version: "2026-07-28",
		},
		{
			name: "always refuses a revision that it lists",
			server: func(f *fake) {
				for range 2 {
					f.say(`{"jsonrpc":"2.0","id":` + string(f.expect(methodDiscover).ID) + `,"error":{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}}`)
				}
				f.idle()
			},
			errors: []any{new(*VersionError)},
		},
		{
			name: "supports only an unknown future revision",
			server: func(f *fake) {
				m := f.expect(methodDiscover)
				f.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32022,"message":"x","data":{"supported":["2031-01-01"]}}}`)
				f.idle()
			},
			errors: []any{new(*VersionError)},
		},
		{
			name: "initializes with an unknown version",
			server: func(f *fake) {
				f.refuse(f.expect(methodDiscover), -32601, "Method not found")
				initialize(f, `{"protocolVersion":"1999-01-01"}`)
			},
			errors: []any{new(*VersionError)},
		},
		{
			name: "requires a capability that the client lacks",
			server: func(f *fake) {
				f.refuse(f.expect(methodDiscover), -32021, "sampling")
				f.idle()
			},
			errors: []any{new(*RPCError)},
		},
		{
			name:    "the client's capabilities are not JSON",
			options: Options{Capabilities: []byte(`{"x":}`)},
			server:  (*fake).idle,
			errors:  []any{ErrNotSent},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play(t, tc.options, tc.server, func(t *testing.T, c *Conn) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				s, err := c.Negotiate(ctx)
				if took := time.Since(began); took != tc.within {
					t.Errorf("Negotiate took %v, want %v", took, tc.within)
				}
				wantError(t, err, tc.errors...)
				if tc.errors != nil {
					if tc.options.Legacy && errors.Is(err, ErrRespawnLegacy) {
						t.Errorf("error = %v advises Options.Legacy, which is already set", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if s.Version != tc.version || s.Modern != (tc.version == modernVersion) {
					t.Errorf("server = %+v, want %s", s, tc.version)
				}
				// A second call must return the same result and send nothing; the scripts report unexpected
				// messages.
				if again, err := c.Negotiate(ctx); again != s || err != nil {
					t.Errorf("second Negotiate = %v, %v; want the first result", again, err)
				}
				synctest.Wait()
			})
		})
	}
}

// TestModernMeta checks the _meta of every modern request, which a caller cannot override.
func TestModernMeta(t *testing.T) {
	o := Options{Name: `am"bit`, Version: "1.2", Capabilities: []byte(`{ "sampling":{} }`)}
	const own = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"am\"bit","version":"1.2"},` +
		`"io.modelcontextprotocol/clientCapabilities":{ "sampling":{} }`
	play(t, o, func(f *fake) {
		check := func(method, want string) {
			m := f.expect(method)
			if string(m.Params) != want {
				t.Errorf("%s has params\n%s, want\n%s", method, m.Params, want)
			}
			result := `{"tools":[]}`
			if method == methodDiscover {
				result = discoverResult
			}
			f.answer(m, result)
		}
		check(methodDiscover, `{"_meta":{`+own+`}}`)
		check(methodListTools, `{"_meta":{`+own+`}}`)
		check(methodCallTool, `{"name":"t","_meta":{`+own+`}}`)
		check(methodCallTool, `{"name":"t","arguments":{},"_meta":{"a":1,`+own+`,"progressToken":"ambit-4"}}`)
		check("x", `{"a":[1, 2],"_meta":{"b":2,`+own+`,"progressToken":77}}`)
		f.idle()
	}, func(t *testing.T, c *Conn) {
		negotiate(t, c)
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Error(err)
		}
		calls := []ToolCall{
			{Name: "t", Meta: []byte(`{"progressToken":1}`)},
			{
				Name: "t", Arguments: []byte(`{}`), OnNotification: func(Notification) {},
				Meta: []byte(`{"a":1,"progressToken":7,"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/protocol\u0056ersion":"1"}`),
			},
		}
		for _, call := range calls {
			if _, err := c.CallTool(t.Context(), call); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Call(t.Context(), "x", []byte(`{"_meta":{"b":2,"progressToken":77},"a":[1, 2]}`)); err != nil {
			t.Error(err)
		}
	})
}

// TestSubscription checks that the client opens a subscription again after a modern server has ended it.
func TestSubscription(t *testing.T) {
	var heard diary
	o := Options{
		OnNotification: func(n Notification) { heard.write(n.Method) },
		OnGap:          func(bool) { heard.write("gap") },
	}
	ack := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`
	changed := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	play(t, o, func(f *fake) {
		f.answer(f.expect(methodDiscover), strings.Replace(discoverResult, `"tools":{}`, `"tools":{"listChanged":true},"prompts":{"listChanged":false}`, 1))
		m := f.expect(methodListen)
		if !strings.HasPrefix(string(m.Params), `{"notifications":{"toolsListChanged":true},"_meta":{`) {
			t.Errorf("the client subscribed with the wrong params %s", m.Params)
		}
		f.say(ack)
		f.say(changed)
		f.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(m.ID) + `}}`)
		f.expect(methodListen)
		f.say(ack)
		f.say(changed)
		f.idle()
	}, func(t *testing.T, c *Conn) {
		negotiate(t, c)
		time.Sleep(time.Minute) // fake time
		heard.want(t, MethodToolsChanged, "gap", MethodToolsChanged)
	})
}

// TestSubscriptionAcknowledgedOnce checks a caller's subscription that is acknowledged without an id. The client
// must not report a gap.
func TestSubscriptionAcknowledgedOnce(t *testing.T) {
	gaps := 0
	o := Options{OnNotification: func(Notification) {}, OnGap: func(bool) { gaps++ }}
	play(t, o, func(f *fake) {
		f.answer(f.expect(methodDiscover), strings.Replace(discoverResult, `"tools":{}`, `"tools":{"listChanged":true}`, 1))
		for m := f.recv(); m.line != ""; m = f.recv() {
			f.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		}
	}, func(t *testing.T, c *Conn) {
		negotiate(t, c)
		for range 3 {
			go c.Do(t.Context(), Request{Method: methodListen})
		}
		synctest.Wait()
		if gaps != 0 {
			t.Errorf("OnGap was called %d times, want 0", gaps)
		}
	})
}

// TestSubscriptionRefused checks that a connection works without a subscription. The client must not retry the
// subscription forever.
func TestSubscriptionRefused(t *testing.T) {
	for name, answer := range map[string]func(*fake, message){
		"by an error":           func(f *fake, m message) { f.refuse(m, -32601, "no") },
		"by ending immediately": func(f *fake, m message) { f.answer(m, `{}`) },
		"by silence":            func(*fake, message) {},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			play(t, Options{OnNotification: func(Notification) {}}, func(f *fake) {
				f.answer(f.expect(methodDiscover), strings.Replace(discoverResult, `"tools":{}`, `"tools":{"listChanged":true}`, 1))
				for m := f.recv(); m.line != ""; m = f.recv() {
					asked++
					answer(f, m)
				}
			}, func(t *testing.T, c *Conn) {
				began := time.Now()
				negotiate(t, c)
				if took := time.Since(began); took > listenWait {
					t.Errorf("Negotiate took %v, want at most %v", took, listenWait)
				}
				time.Sleep(time.Hour) // fake time
			})
			if asked > maxResumes+1 {
				t.Errorf("the client asked for a subscription %d times, want at most %d", asked, maxResumes+1)
			}
		})
	}
}

// roundTrip is a function that implements [http.RoundTripper].
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSubscriptionAway checks that the client keeps retrying the subscription if the server is unreachable.
func TestSubscriptionAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		transport, err := HTTP("http://far.example", HTTPOptions{RoundTripper: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Mcp-Method") == methodListen {
				asked++
				return nil, &net.OpError{Op: "dial", Err: errors.New("no server is there")}
			}
			result := strings.Replace(discoverResult, `"tools":{}`, `"tools":{"listChanged":true}`, 1)
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`)),
			}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		c := New(transport, Options{OnNotification: func(Notification) {}})
		defer c.Close()
		negotiate(t, c)
		time.Sleep(time.Hour) // fake time
		synctest.Wait()
		if least, most := int(time.Hour/maxPause), 3*int(time.Hour/maxPause); asked < least || asked > most {
			t.Errorf("the client asked %d times within an hour, want %d to %d", asked, least, most)
		}
	})
}
