package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
)

// api is the upstream server of the shipped example. Like a careless server, it repeats the token of a request in its
// answer.
type api struct {
	mu    sync.Mutex
	heard []string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.heard = append(a.heard, r.Method+" "+r.Host+r.URL.String()+" "+string(body)+" "+r.Header.Get("Authorization"))
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"visits": 12, "debug": "you sent " + r.Header.Get("Authorization")})
}

func (a *api) calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.heard...)
}

// TestDeclarativeAgent makes calls with the shipped example. It checks that a credential goes from the vault only to
// its host. It also checks that a guardrail refuses a call, and that a person can approve a call from another
// process. At the end, the journal must be intact.
func TestDeclarativeAgent(t *testing.T) {
	const token = "not-a-real-token-of-any-known-shape"
	upstream := &api{}
	server := httptest.NewTLSServer(upstream)
	defer server.Close()
	home := t.TempDir()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AMBIT_HOME", home)
	t.Setenv("AMBIT_DEV_CA", ca)
	t.Setenv("AMBIT_DEV_RESOLVE", "api.example.com:443="+server.Listener.Addr().String())
	agent := filepath.Join("..", "..", "agents", "examples", "mcp-tool", "findagent.json")

	var said bytes.Buffer
	var mu sync.Mutex
	ambit := func(want int, in string, args ...string) (out, problems string) {
		t.Helper()
		var o, e bytes.Buffer
		if code := cli.Run(context.Background(), args, strings.NewReader(in), &o, &e); code != want {
			t.Errorf("ambit %s exited %d, want %d: %s%s", strings.Join(args, " "), code, want, o.String(), e.String())
		}
		mu.Lock()
		defer mu.Unlock()
		said.WriteString(o.String() + e.String())
		return o.String(), e.String()
	}

	if _, e := ambit(3, "", "call", agent, "get_traffic_summary", "--input", `{"range":"last-7-days"}`); !strings.Contains(e, "credential_missing") || !strings.Contains(e, "ambit secret set") {
		t.Errorf("without the credential: %s", e)
	}
	ambit(0, token, "secret", "set", agent, "analytics_token")
	if out, _ := ambit(0, "", "call", agent, "get_traffic_summary", "--input", `{"range":"last-7-days"}`); !strings.Contains(out, `"visits":12`) {
		t.Errorf("after the credential is set, the call returns %s, want 12 visits", out)
	}
	if got := upstream.calls(); len(got) != 1 || got[0] != "GET api.example.com/v1/traffic?range=last-7-days  Bearer "+token {
		t.Errorf("the server got the requests %q, want one GET request with the token", got)
	}
	ambit(1, "", "call", agent, "get_traffic_summary", "--input", `{"range":"all of it"}`)

	// A person approves the call that spends money. The approval comes from another process.
	spend := []string{"call", agent, "increase_campaign_budget", "--json", "--input", `{"campaign":"c1","amount":10.50,"currency":"EUR","reason":"because it pays"}`}
	ended := make(chan string)
	go func() {
		out, _ := ambit(0, "", spend...)
		ended <- out
	}()
	var waiting struct {
		Approvals []struct {
			ID        string          `json:"id"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"approvals"`
	}
	for len(waiting.Approvals) == 0 {
		out, _ := ambit(0, "", "approvals", "list", "--json")
		if err := json.Unmarshal([]byte(out), &waiting); err != nil {
			t.Fatal(err)
		}
	}
	var shown bytes.Buffer
	if err := json.Compact(&shown, waiting.Approvals[0].Arguments); err != nil || shown.String() != `{"amount":10.50,"campaign":"c1","currency":"EUR","reason":"because it pays"}` {
		t.Errorf("the approval shows the arguments %s (error %v), want the arguments of the call", shown.String(), err)
	}
	if n := len(upstream.calls()); n != 1 {
		t.Errorf("the server got %d calls before the approval, want 1", n)
	}
	ambit(0, "", "approvals", "approve", waiting.Approvals[0].ID[:8])
	if out := <-ended; !strings.Contains(out, `"is_error": false`) {
		t.Errorf("the approved call returns %s, want a result without an error", out)
	}
	if got := upstream.calls(); len(got) != 2 || !strings.HasPrefix(got[1], `POST api.example.com/v1/campaigns/c1/budget-increases {"amount": 10.50, "currency": "EUR", "reason": "because it pays"} Bearer `) {
		t.Errorf("the server got the requests %q, want a POST request with the arguments", got)
	}

	ambit(0, "", "journal", "verify")
	ambit(0, "", "journal", "export", "-o", filepath.Join(home, "export.jsonl"))
	if strings.Contains(said.String(), token) {
		t.Error("the token was printed")
	}
	// No file in the home, including the store, contains the token in plain text.
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(token)) {
			t.Errorf("the token is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
