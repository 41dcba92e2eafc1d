package action

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// seed is the dialect's example manifest, with a complete system prompt.
const seed = `{
  "name": "GA Report Builder",
  "description": "Pulls a traffic summary and writes it to a sheet.",
  "system_prompt": "You are a focused analytics assistant that reports figures as they are.",
  "kind": "mcp-tool",
  "category": "analytics",
  "tools": [
    {
      "name": "get_traffic_summary",
      "description": "Fetch a traffic summary for a date range.",
      "input_schema": { "type": "object", "properties": { "range": { "type": "string" } } },
      "annotations": { "readOnlyHint": true },
      "action": {
        "type": "http",
        "method": "GET",
        "url": "https://api.example.com/v1/traffic?range={range}",
        "auth_ref": "analytics_token"
      }
    }
  ],
  "credential_slots": [
    {
      "ref": "analytics_token",
      "label": "Analytics API token",
      "env": "ANALYTICS_TOKEN",
      "allowed_hosts": ["api.example.com"]
    }
  ],
  "example_prompts": ["Summarize last week's traffic."],
  "delivery": { "mcp": { "stdio": { "command": "findagent-mcp", "args": ["run", "ga-report-builder"] } } },
  "exec": "user-local",
  "targets": ["claude-desktop", "cursor", "cli"]
}`

func seedAgent(t *testing.T) *agent.Agent {
	t.Helper()
	m, err := manifest.Parse("findagent.json", []byte(seed), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Agent()
}

// TestSeedExample runs the example against a real TLS server, with the token
// from a real vault.
func TestSeedExample(t *testing.T) {
	ca := newAuthority(t)
	api := ca.server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"range": "`+r.URL.Query().Get("range")+`", "visits": 9007199254740993}`)
	}, "api.example.com")
	a := seedAgent(t)
	t.Setenv("AMBIT_HOME", t.TempDir())
	h, err := home.Find()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := credential.New(credential.String, canary, a.Slots[0].Hosts)
	if err != nil {
		t.Fatal(err)
	}
	vault := credential.Open(h)
	if err := vault.Set("reporter", "analytics_token", secret.Of(credential.ID(a))); err != nil {
		t.Fatal(err)
	}
	client := egress.New(ca.switches(t, map[string]*server{"api.example.com:443": api}))
	t.Cleanup(client.Close)
	b := New(a, Options{Egress: client, Credentials: &credential.Source{Agent: "reporter", Vault: vault, Environ: func(string) (string, bool) { return "", false }}})
	c := &call.Call{ID: "1", Tool: "get_traffic_summary", Arguments: jsontext.Value(`{"range":"last week & more"}`)}
	result, err := b.Act(t.Context(), &a.Tools[0], c)
	got := read(t, result, err)
	if got.IsError || string(got.StructuredContent) != `{"range":"last week & more","visits":9007199254740993}` || got.Content[0].Text != `{"range": "last week & more", "visits": 9007199254740993}` {
		t.Errorf("result = %s, want the answer of the server", result.Raw)
	}
	seen := api.requests()
	if len(seen) != 1 || !strings.HasPrefix(seen[0], "GET api.example.com /v1/traffic?range=last%20week%20%26%20more ") {
		t.Errorf("the server received %d requests, want 1", len(seen))
	}
	if strings.Contains(string(result.Raw), canary) {
		t.Error("the result contains the token")
	}

	// Without the token the agent is served, and its calls report the missing credential.
	if _, err := vault.Remove("reporter", "analytics_token"); err != nil {
		t.Fatal(err)
	}
	_, err = b.Act(t.Context(), &a.Tools[0], c)
	if r := wantCode(t, err, call.CredentialMissing, call.NoEffect); !strings.Contains(r.Hint, "ambit secret set reporter analytics_token") {
		t.Error(r.Hint)
	}
	if len(api.requests()) != 1 {
		t.Error("a request was sent without the token")
	}
}

// TestTokenGoesNowhereElse checks that the token is not sent to hosts outside its audience. All these host names lead
// to one server. The server has a valid certificate for each name.
func TestTokenGoesNowhereElse(t *testing.T) {
	ca := newAuthority(t)
	names := []string{
		"api.example.com.evil.test", "evil.test", "xapi.example.com", "api-example.com", "example.com", "xn--pi-7kc.example.com", "api.example.co",
	}
	trap := ca.server(t, func(http.ResponseWriter, *http.Request) {}, names...)
	to := map[string]*server{}
	for _, n := range names {
		to[n+":443"] = trap
	}
	client := egress.New(ca.switches(t, to))
	t.Cleanup(client.Close)
	_, port, _ := net.SplitHostPort(trap.Listener.Addr().String())
	addresses := []string{
		"https://api.example.com@evil.test/", "https://api.example.com:pw@evil.test/", "https://evil.test#@api.example.com/", "https://evil.test/?api.example.com",
		"https://api.example.com.evil.test./", "https://API.EXAMPLE.COM.EVIL.TEST/", "https://аpi.example.com/", "http://api.example.com/", "http://evil.test/",
		"https://127.0.0.1:" + port + "/", "https://2130706433:" + port + "/", "https://017700000001:" + port + "/", "https://0x7f000001:" + port + "/",
		"https://0177.0.0.1:" + port + "/", "https://127.1:" + port + "/", "https://[::ffff:127.0.0.1]:" + port + "/", "https://[::ffff:7f00:1]:" + port + "/",
	}
	for _, n := range names {
		addresses = append(addresses, "https://"+n+"/")
	}
	for _, address := range addresses {
		a := seedAgent(t)
		h := a.Tools[0].Binding.(agent.HTTP)
		h.URL = address
		// The call must be refused, whichever host was reviewed.
		for _, host := range []string{hostOf(address), "api.example.com", "evil.test"} {
			h.Host = host
			a.Tools[0].Binding = h
			_, err := New(a, Options{Egress: client, Credentials: token(canary)}).Act(t.Context(), &a.Tools[0], &call.Call{ID: "1", Arguments: jsontext.Value(`{"range":"x"}`)})
			wantCode(t, err, call.HostNotAllowed, call.NoEffect)
		}
	}
	if seen := trap.requests(); len(seen) != 0 {
		t.Errorf("the server received %d requests, want 0", len(seen))
	}
	// Without a token, the same request reaches the server, so the test above would have noticed a request.
	a := seedAgent(t)
	a.Tools[0].Binding = agent.HTTP{Method: "GET", URL: "https://evil.test/", Host: "evil.test"}
	if _, err := New(a, Options{Egress: client}).Act(t.Context(), &a.Tools[0], &call.Call{ID: "1"}); err != nil || len(trap.requests()) != 1 {
		t.Errorf("error %v, %d requests; want 1 request", err, len(trap.requests()))
	}
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
}

// TestRedirectsDoNotCarryTheToken checks that a redirect by the token's host is reported and not followed.
func TestRedirectsDoNotCarryTheToken(t *testing.T) {
	ca := newAuthority(t)
	trap := ca.server(t, func(http.ResponseWriter, *http.Request) {}, "evil.test", "sub.api.example.com")
	for _, code := range []int{301, 302, 303, 307, 308} {
		for location, want := range map[string]string{
			"https://evil.test/path-" + canary: `host "evil.test"`, "https://user:pw@evil.test/": `host "evil.test"`, "//evil.test/": `host "evil.test"`,
			"https://sub.api.example.com/": `host "sub.api.example.com"`, "/other": `host "api.example.com"`, "http://169.254.169.254/": `host "169.254.169.254"`,
			"https://%zz": "an unknown host", "data:text/plain,x": "an unknown host",
		} {
			api := ca.server(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(code)
				io.WriteString(w, "go there")
			}, "api.example.com")
			client := egress.New(ca.switches(t, map[string]*server{"api.example.com:443": api, "evil.test:443": trap, "sub.api.example.com:443": trap}))
			a := seedAgent(t)
			result, err := New(a, Options{Egress: client, Credentials: token(canary)}).Act(t.Context(), &a.Tools[0], &call.Call{ID: "1", Arguments: jsontext.Value(`{"range":"x"}`)})
			got := read(t, result, err)
			if text := got.Content[0].Text; !got.IsError || !strings.Contains(text, want) || strings.Contains(text, "path-") || strings.Contains(text, "pw") {
				t.Errorf("status %d with the location %s is reported as %s", code, location, text)
			}
			if len(api.requests()) != 1 {
				t.Errorf("status %d: the server received %d requests, want 1", code, len(api.requests()))
			}
			client.Close()
			api.Close()
		}
	}
	if seen := trap.requests(); len(seen) != 0 {
		t.Errorf("%d redirects were followed", len(seen))
	}
}

// rebinding is a resolver that resolves every name to this machine.
type rebinding struct{}

func (rebinding) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// TestReboundName checks that no request is sent if the token's host resolves to a loopback address.
func TestReboundName(t *testing.T) {
	ca := newAuthority(t)
	trap := ca.server(t, func(http.ResponseWriter, *http.Request) {}, "api.example.com")
	_, port, _ := net.SplitHostPort(trap.Listener.Addr().String())
	dialer := egress.NewDialer(ca.switches(t, nil))
	dialer.Resolver = rebinding{}
	a := seedAgent(t)
	h := a.Tools[0].Binding.(agent.HTTP)
	h.URL = "https://api.example.com:" + port + "/?range={range}"
	a.Tools[0].Binding = h
	_, err := New(a, Options{Egress: egress.NewClient(dialer), Credentials: token(canary)}).Act(t.Context(), &a.Tools[0], &call.Call{ID: "1", Arguments: jsontext.Value(`{"range":"x"}`)})
	wantCode(t, err, call.AddressBlocked, call.NoEffect)
	if len(trap.requests()) != 0 {
		t.Error("the server was reached")
	}
}
