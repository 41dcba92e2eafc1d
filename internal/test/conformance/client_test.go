package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
)

// unsupported lists the scenarios that do not pass, with the reason.
var unsupported = map[string]string{
	"elicitation-sep1034-client-defaults": "ambit passes questions on to its own client, which fills in the defaults",
	"sep-2322-client-request-state":       "ambit's front repeats such calls for its own client; this test has no front",
	"sep-2640-client-no-prefetch":         "ambit reads no skills from tool servers; the suite checks nothing",
	"sep-2640-client-verify-digest":       "ambit reads no skills from tool servers; the suite checks nothing",
	"sep-2640-client-verify-size":         "ambit reads no skills from tool servers; the suite checks nothing",
	"sep-2640-client-verify-frontmatter":  "ambit reads no skills from tool servers; the suite checks nothing",
}

var (
	scenarioResult = regexp.MustCompile(`(?m)^([✓✗]) ([\w/-]+): (\d+) passed, (\d+) failed(, \d+ warnings)?$`)
	passedAlone    = regexp.MustCompile(`Passed: [1-9][0-9]*/[0-9]+, 0 failed, 0 warnings\n\n✅ OVERALL: PASSED`)
)

// TestClientConformance plays the suite's scenarios for clients with the client that ambit uses for tool servers.
func TestClientConformance(t *testing.T) {
	node := nodeFor(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	failed := playAll(t, node, self)
	t.Logf("%d of %d scenarios fail at the first try, without those that ambit does not support", len(failed), scenarios)
	// The suite plays all scenarios at once. A scenario that fails on a busy machine is played again alone.
	for _, name := range failed {
		t.Run(name, func(t *testing.T) {
			var out string
			for range 2 {
				if out = playSuite(t, node, self, "--scenario", name); passedAlone.MatchString(out) {
					return
				}
			}
			t.Error(out)
		})
	}
}

// scenarios is the number of the suite's scenarios for clients.
const scenarios = 48

// playAll plays all scenarios and returns those that fail, although ambit should support them.
func playAll(t *testing.T, node, self string) (failed []string) {
	t.Helper()
	out := playSuite(t, node, self, "--suite", "all")
	found := scenarioResult.FindAllStringSubmatch(out, -1)
	if len(found) != scenarios {
		t.Fatalf("the suite reported %d scenarios, want %d:\n%s", len(found), scenarios, out)
	}
	for _, m := range found {
		ok := m[1] == "✓" && m[3] != "0" && m[4] == "0" && m[5] == ""
		why, listed := unsupported[m[2]]
		switch {
		case ok && listed:
			t.Errorf("%s passes; remove it from the list (it said: %s)", m[2], why)
		case !ok && !listed:
			failed = append(failed, m[2])
		}
	}
	for name := range unsupported {
		if !slices.ContainsFunc(found, func(m []string) bool { return m[2] == name }) {
			t.Errorf("the suite has no scenario %s", name)
		}
	}
	return failed
}

// playSuite runs the suite and returns its output.
func playSuite(t *testing.T, node, self string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, append([]string{
		filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"), "client",
		"--command", self, "--timeout", "240000", "--output-dir", t.TempDir(),
	}, args...)...)
	out, _ := cmd.CombinedOutput() // the exit code says only that some scenario failed
	return string(out)
}

// The suite starts the test binary as the client of a scenario, with the scenario's name in this variable and the
// server's URL as the last argument.
const scenarioEnv = "MCP_CONFORMANCE_SCENARIO"

func TestMain(m *testing.M) {
	scenario := os.Getenv(scenarioEnv)
	if scenario == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if err := play(ctx, scenario, os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// given is what the suite tells the client of a scenario.
type given struct {
	ClientID  string `json:"client_id"`
	Secret    string `json:"client_secret"`
	Key       string `json:"private_key_pem"`
	Assertion string `json:"valid_jwt"`
	IDToken   string `json:"idp_id_token"`
	IDPToken  string `json:"idp_token_endpoint"`
	IDPClient string `json:"idp_client_id"`
	ToolCalls []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"toolCalls"`
}

// play plays a scenario with ambit's own client for tool servers.
func play(ctx context.Context, scenario, address string) error {
	var given given
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "ambit-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := connect(ctx, home.At(dir), scenario, address, given)
	if err != nil {
		return err
	}
	defer c.Close()
	proof := c.Proofs()[0]
	if !proof.OK {
		return proof.Refusal
	}
	for _, tool := range c.calls(scenario, given, proof) {
		if err := c.call(ctx, tool.name, tool.arguments); err != nil {
			return fmt.Errorf("%s: %w", tool.name, err)
		}
	}
	return nil
}

type upstream struct{ *toolserver.Manager }

func connect(ctx context.Context, h home.Home, scenario, address string, given given) (*upstream, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	settings := fmt.Sprintf("[upstream.%q]\nclient_metadata_url = %q\nlegacy_discovery = %t\n",
		u.Host, "https://conformance-test.local/client-metadata.json", strings.Contains(scenario, "2025-03-26"))
	vault := credential.Open(h)
	if given.ClientID != "" {
		issuer, err := issuerOf(ctx, u)
		if err != nil {
			return nil, err
		}
		settings += fmt.Sprintf("client_id = %q\nissuer = %q\n", given.ClientID, issuer)
		if strings.HasPrefix(scenario, "auth/client-credentials") {
			settings += "grant = \"client_credentials\"\n"
		}
		if token := given.Assertion + given.IDToken; token != "" {
			file := filepath.Join(h.Dir(), "assertion")
			settings += fmt.Sprintf("assertion_file = %q\n", file)
			if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
				return nil, err
			}
		}
		switch {
		case given.Assertion != "":
			settings += "grant = \"jwt_bearer\"\n"
		case given.IDToken != "":
			settings += fmt.Sprintf("grant = \"id_jag\"\nidp_token_endpoint = %q\nidp_client_id = %q\n",
				given.IDPToken, given.IDPClient)
		}
		if text := cmp.Or(given.Secret, given.Key); text != "" {
			secret, err := credential.New(credential.Masked, text, nil)
			if err == nil {
				err = vault.Set(credential.Own, "client:"+u.Host, secret)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if err := os.WriteFile(h.Config(), []byte(settings), 0o600); err != nil {
		return nil, err
	}
	switches, err := egress.Read(os.LookupEnv, true, false)
	if err != nil {
		return nil, err
	}
	keeper := signin.New(h, vault, egress.New(switches))
	session := keeper.Session(signin.Target{
		Agent: "suite", ID: "suite", Server: "suite", Endpoint: address, Principal: "suite@local",
	}, &signin.Loopback{Show: visit})
	server := agent.Server{Alias: "suite", Transport: agent.StreamableHTTP, Endpoint: address, Version: "1.0.0"}
	return &upstream{toolserver.Start(ctx, &agent.Agent{ID: "suite"}, toolserver.Options{
		Home: h, Version: "test", Servers: []toolserver.Spec{{Server: server, Learn: true}},
		SignIn: func(*agent.Server) toolserver.SignIn { return session },
		Log:    func(_, line string) { fmt.Fprintln(os.Stderr, line) },
	})}, nil
}

// issuerOf returns the authorization server of a server, as an owner would look it up to register a client there.
func issuerOf(ctx context.Context, server *url.URL) (string, error) {
	at := server.Scheme + "://" + server.Host + "/.well-known/oauth-protected-resource" + server.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var meta struct {
		Issuers []string `json:"authorization_servers"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&meta); err != nil || len(meta.Issuers) == 0 {
		return "", fmt.Errorf("%s names no authorization server: %v", at, err)
	}
	return meta.Issuers[0], nil
}

// visit opens a page like a browser: it follows the page's redirect back to ambit.
func visit(ctx context.Context, page string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	return nil
}

type toolCall struct{ name, arguments string }

// calls returns the calls that a scenario consists of.
func (*upstream) calls(scenario string, given given, proof toolserver.Proof) (calls []toolCall) {
	if len(given.ToolCalls) > 0 {
		for _, c := range given.ToolCalls {
			calls = append(calls, toolCall{c.Name, string(c.Arguments)})
		}
		return calls
	}
	for _, name := range slices.Sorted(maps.Keys(proof.Tools)) {
		arguments := "{}"
		switch scenario {
		case "tools_call":
			arguments = `{"a":5,"b":3}`
		case "http-invalid-tool-headers":
			arguments = `{"region":"us-west1"}`
		case "json-schema-2020-12-preservation":
			if name != "json_schema_echo" {
				continue
			}
			var tool struct {
				InputSchema jsontext.Value `json:"inputSchema"`
			}
			if json.Unmarshal(proof.Tools["json_schema_2020_12_tool"], &tool) == nil {
				arguments = `{"schema":` + string(tool.InputSchema) + `}`
			}
		}
		calls = append(calls, toolCall{name, arguments})
	}
	return calls
}

func (c *upstream) call(ctx context.Context, name, arguments string) error {
	tool := &agent.Tool{Name: name, SideEffect: agent.Read, Binding: agent.OnServer{Alias: "suite"}}
	_, err := c.Act(ctx, tool, &call.Call{Arguments: jsontext.Value(arguments)})
	return err
}
