package cli_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// remote is an MCP server. It refuses a request if the function accept returns false. Its answer repeats the token
// of the request.
type remote struct {
	accept func(authorization string) bool

	mu    sync.Mutex
	heard map[string]bool
}

func (s *remote) tokens() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

func (s *remote) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	authorization := r.Header.Get("Authorization")
	s.mu.Lock()
	if s.heard == nil {
		s.heard = map[string]bool{}
	}
	s.heard[authorization] = true
	s.mu.Unlock()
	if !s.accept(authorization) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	switch {
	case r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := `"error":{"code":-32601,"message":"there is no such method"}`
	switch m.Method {
	case "initialize":
		answer = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"remote","version":"1"}}`
	case "tools/list":
		answer = `"result":{"tools":[{"name":"whoami","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		said, _ := json.Marshal("you are " + strings.TrimPrefix(authorization, "Bearer "))
		answer = `"result":{"content":[{"type":"text","text":` + string(said) + `}]}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func matrixAt(t *testing.T, endpoint string) string {
	return write(t, "agent.json", `{"schema_version":1,"agent":"matrix://agent/remote-test","allowed_side_effects":["read"],
		"servers":[{"alias":"there","transport":"http","endpoint":"`+endpoint+`","version":"1.0.0","tools":[{"name":"whoami","side_effect_class":"read"}]}]}`)
}

func hostedAt(t *testing.T, endpoint, auth string) string {
	return write(t, "findagent.json", `{"name":"Hosted","system_prompt":"You are hosted elsewhere, and clients reach you through your URL.","kind":"mcp-tool",
		"tools":[{"name":"whoami","description":"Says who you are.","annotations":{"readOnlyHint":true},"action":{"type":"prompt-template","template":"Who?"}}],
		"example_prompts":["Who am I?"],"delivery":{"mcp":{"remote":{"url":"`+endpoint+`"}}},"exec":"findagent-hosted","auth":"`+auth+`"}`)
}

// trusting runs ambit in a separate process that trusts the certificate of the server s.
func trusting(t *testing.T, s *httptest.Server, want int, in string, args ...string) string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ambit", args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), "SSL_CERT_FILE="+ca), strings.NewReader(in)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // the exit code is checked below
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("ambit %s exited %d, want %d: %s", strings.Join(args, " "), got, want, out.String())
	}
	return out.String()
}

// TestLoginReachesItsHosts signs in at a real provider, and calls servers that check the token at that provider. The
// tokens have a short lifetime, so each use renews them.
func TestLoginReachesItsHosts(t *testing.T) {
	issuer := openProvider(t, "20")
	t.Setenv("AMBIT_HOME", t.TempDir())
	there := &remote{accept: func(a string) bool {
		token, ok := strings.CutPrefix(a, "Bearer ")
		return ok && userinfo(t, issuer, token) == http.StatusOK
	}}
	server, hosted := httptest.NewServer(there), httptest.NewTLSServer(there)
	defer server.Close()
	defer hosted.Close()
	agent := matrixAt(t, server.URL+"/mcp")
	findagent := hostedAt(t, hosted.URL+"/mcp", "oauth-device")

	// Without a sign-in for the agent's host, ambit sends no request.
	if out := trusting(t, hosted, 3, "", "call", findagent, "whoami"); !strings.Contains(out, "credential_missing") || !strings.Contains(out, "ambit login --host "+strings.TrimPrefix(hosted.URL, "https://")) {
		t.Errorf("without a sign-in, got the output %s, want credential_missing and the command that signs in", out)
	}
	if len(there.tokens()) != 0 {
		t.Errorf("the server got %d tokens, want none", len(there.tokens()))
	}

	at := []string{strings.TrimPrefix(server.URL, "http://"), strings.TrimPrefix(hosted.URL, "https://")}
	if code, out, errOut := signIn(t, issuer, true, "--host", at[0], "--host", at[1]); code != 0 || !strings.Contains(out, `"`+at[0]+`"`) || !strings.Contains(out, `"`+at[1]+`"`) {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
	for what, said := range map[string]string{
		"a tool server":  must(t, 0, "call", agent, "whoami"),
		"verify matrix":  must(t, 0, "verify", agent),
		"a hosted agent": trusting(t, hosted, 0, "", "call", findagent, "whoami"),
		"verify hosted":  trusting(t, hosted, 0, "", "verify", findagent),
	} {
		for header := range there.tokens() {
			if token := strings.TrimPrefix(header, "Bearer "); token == "" || strings.Contains(said, token) {
				t.Errorf("%s prints a token, or sends a request without a token", what)
			}
		}
		if strings.Contains(what, "a ") && !strings.Contains(said, "you are [secret:") {
			t.Errorf("%s: %s", what, said)
		}
	}
	if len(there.tokens()) < 4 {
		t.Errorf("the servers got %d different tokens, want at least 4", len(there.tokens()))
	}

	// The token is not sent to another port of the same machine.
	elsewhere := &remote{accept: func(string) bool { return true }}
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	must(t, 0, "call", matrixAt(t, other.URL), "whoami")
	if got := elsewhere.tokens(); len(got) != 1 || !got[""] {
		t.Errorf("another port got %d tokens, want only an empty one", len(got))
	}
}

func must(t *testing.T, want int, args ...string) string {
	t.Helper()
	code, out, errOut := ambit(t, args...)
	if code != want {
		t.Errorf("ambit %s exited %d, want %d: %s%s", strings.Join(args, " "), code, want, out, errOut)
	}
	return out + errOut
}

// A hosted agent with API-key authentication gets the key that was set for its host. No other host gets this key.
func TestHostedAgentWithAKey(t *testing.T) {
	const key = "not-a-real-key-of-any-known-shape"
	t.Setenv("AMBIT_HOME", t.TempDir())
	there := &remote{accept: func(a string) bool { return a == "Bearer "+key }}
	server, other := httptest.NewTLSServer(there), httptest.NewTLSServer(there)
	defer server.Close()
	defer other.Close()
	agent := hostedAt(t, server.URL+"/mcp", "api-key")
	if out := trusting(t, server, 3, "", "call", agent, "whoami"); !strings.Contains(out, "credential_missing") || len(there.tokens()) != 0 {
		t.Errorf("without a key, got the output %s, want credential_missing and no token sent", out)
	}
	trusting(t, server, 0, key, "secret", "set", agent, "FINDAGENT_TOKEN")
	if out := trusting(t, server, 0, "", "call", agent, "whoami"); !strings.Contains(out, "you are [secret:") || strings.Contains(out, key) {
		t.Errorf("with the key, got the output %s, want the redacted key", out)
	}
	// The key is not sent if the agent's manifest names another host.
	moved := hostedAt(t, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), "api-key")
	if out := trusting(t, other, 3, "", "call", moved, "whoami"); !strings.Contains(out, "credential_missing") || strings.Contains(out, key) {
		t.Errorf("with a manifest for another host, got the output %s, want credential_missing", out)
	}
	hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"whoami","arguments":{}}}` + "\n"
	// Every verb agrees that the agent executes at its URL.
	for _, args := range [][]string{{"inspect", agent}, {"install", agent, "--client", "cursor", "--dry-run", "--offline", "--yes"}} {
		out := trusting(t, server, 0, "", args...)
		if !strings.Contains(out, "127.0.0.1  (server remote)") || !strings.Contains(out, "remote runs outside ambit") {
			t.Errorf("%s: got the output %s", args[0], out)
		}
	}
	// The agent is reached at its URL, with --remote and without it.
	for _, args := range [][]string{{"run", agent}, {"run", "--remote", agent}} {
		if out := trusting(t, server, 0, hello, args...); !strings.Contains(out, "you are [secret:") || strings.Contains(out, key) {
			t.Errorf("ambit %q printed %s, want the redacted key", args, out)
		}
	}
}

// A hosted agent needs no actions. Its tools are the tools of its server.
func TestHostedAgentWithoutActions(t *testing.T) {
	t.Setenv("AMBIT_HOME", t.TempDir())
	there := &remote{accept: func(string) bool { return true }}
	server := httptest.NewTLSServer(there)
	defer server.Close()
	agent := write(t, "findagent.json", `{"name":"Hosted","system_prompt":"You are hosted elsewhere, and clients reach you through your URL.","kind":"mcp-tool",
		"tools":[{"name":"whoami","description":"Says who you are.","annotations":{"readOnlyHint":true}}],
		"example_prompts":["Who am I?"],"delivery":{"mcp":{"remote":{"url":"`+server.URL+`/mcp"}}}}`)
	if out := trusting(t, server, 0, "", "call", agent, "whoami"); !strings.Contains(out, "you are") {
		t.Errorf("ambit call printed %s, want the answer of the server", out)
	}
	if out := trusting(t, server, 0, "", "inspect", agent); !strings.Contains(out, "127.0.0.1  (server remote)") {
		t.Errorf("ambit inspect printed %s, want the host of the server", out)
	}
}
