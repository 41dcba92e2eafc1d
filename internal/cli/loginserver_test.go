package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// notes is a remote server whose tokens come from an authorization server. It asks the authorization server about each
// token.
type notes struct {
	remote
	issuer  string
	address string
}

func startNotes(t *testing.T, issuer string) *notes {
	t.Helper()
	n := &notes{issuer: issuer}
	n.accept = func(a string) bool {
		token, ok := strings.CutPrefix(a, "Bearer ")
		return ok && n.valid(t, token)
	}
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	n.address = server.URL + "/mcp"
	return n
}

func (n *notes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/oauth-protected-resource/mcp" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q],"scopes_supported":["notes:read"]}`, n.address, n.issuer)
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	n.remote.ServeHTTP(w, r)
}

// valid reports whether the authorization server issued the token for this server.
func (n *notes) valid(t *testing.T, token string) bool {
	form := url.Values{"token": {token}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.issuer+"/token/introspection", strings.NewReader(form.Encode()))
	if err != nil {
		t.Error(err)
		return false
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("server", "secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return false
	}
	defer resp.Body.Close()
	var is struct {
		Active     bool
		Aud, Scope string
	}
	if err := json.NewDecoder(resp.Body).Decode(&is); err != nil {
		t.Error(err)
	}
	return is.Active && is.Aud == n.address && slices.Contains(strings.Fields(is.Scope), "notes:read")
}

// signInTo runs ambit login for a server, and signs in on the page that ambit prints.
func signInTo(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	r, w := io.Pipe()
	var o bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(t.Context(), append([]string{"login", "--no-browser", "--dev", "--json"}, args...), strings.NewReader(""), &o, w)
		w.Close()
	}()
	var all strings.Builder
	page := regexp.MustCompile(`^open (\S+)$`)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if m := page.FindStringSubmatch(lines.Text()); m != nil {
			person(t, m[1], true)
		}
	}
	return <-done, o.String(), all.String()
}

// TestServerLoginAtARealProvider signs in to a remote server, uses, renews, revokes and loses the sign-in.
func TestServerLoginAtARealProvider(t *testing.T) {
	issuer := startProvider(t, "remote.mjs", "20") // ambit treats such tokens as expired, so each use renews them
	home := t.TempDir()
	t.Setenv("AMBIT_HOME", home)
	t.Setenv("AMBIT_DEV", "1")
	there := startNotes(t, issuer)
	agent := matrixAt(t, there.address)

	login := "ambit login " + agent + " there"
	if said := must(t, 3, "call", agent, "whoami"); !strings.Contains(said, "server there needs a sign-in") || !strings.Contains(said, login) {
		t.Errorf("a call without a sign-in: %s", said)
	}
	if said := must(t, 3, "verify", agent); !strings.Contains(said, login) {
		t.Errorf("verify without a sign-in: %s", said)
	}
	if said := must(t, 0, "why", agent, "whoami"); !strings.Contains(said, "if the server needs a sign-in, run: "+login) {
		t.Errorf("why without a sign-in: %s", said)
	}
	code, out, errOut := signInTo(t, agent, "there")
	if code != 0 || !strings.Contains(out, `"renewable": true`) || !strings.Contains(out, `"tools": 1`) {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
	said := []string{out, errOut}
	for range 3 {
		answer := must(t, 0, "call", agent, "whoami")
		if !strings.Contains(answer, "you are [secret:") {
			t.Errorf("a call with a sign-in: %s", answer)
		}
		said = append(said, answer)
	}
	list := must(t, 0, "login", "list")
	if !strings.Contains(list, "renewed when needed") {
		t.Errorf("login list: %s", list)
	}
	said = append(said, list, must(t, 0, "login", "list", "--json"), must(t, 0, "journal", "show", "--json"))
	tokens := there.tokens()
	if len(tokens) < 4 {
		t.Errorf("the server got %d different tokens, want at least 4", len(tokens))
	}
	kept, err := os.ReadFile(home + "/secrets")
	if err != nil {
		t.Fatal(err)
	}
	for header := range tokens {
		token := strings.TrimPrefix(header, "Bearer ")
		if token != "" && strings.Contains(strings.Join(said, "")+string(kept), token) {
			t.Error("a token is printed, recorded or stored in plain text")
		}
	}

	if out := must(t, 0, "logout", agent, "there", "--json"); !strings.Contains(out, `"revoked": true`) {
		t.Errorf("logout: %s", out)
	}
	for header := range tokens {
		if token, ok := strings.CutPrefix(header, "Bearer "); ok && there.valid(t, token) {
			t.Error("a token is still valid after logout")
		}
	}
	if said := must(t, 3, "call", agent, "whoami"); !strings.Contains(said, login) {
		t.Errorf("a call after logout: %s", said)
	}
	must(t, 1, "logout", agent, "there")
	if code, out, errOut := signInTo(t, agent, "there"); code != 0 {
		t.Errorf("signing in again exits with %d, want 0: %s%s", code, out, errOut)
	}
}

// A sign-in can be removed after the agent was removed.
func TestLogoutWithoutAgent(t *testing.T) {
	h := home.At(t.TempDir())
	t.Setenv("AMBIT_HOME", h.Dir())
	kept, err := credential.New(credential.JSON, `{"principal":"`+identity.LocalName()+`","access_token":"canary",`+
		`"resource":"https://notes.example.com/mcp","issuer":"https://login.example.com"}`, []string{"notes.example.com"})
	if err == nil {
		err = credential.Open(h).Set("notes", "signin:there:"+identity.LocalName(), kept.Of("matrix://agent/remote-test"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if said := must(t, 0, "login", "list"); !strings.Contains(said, "notes.example.com") {
		t.Errorf("the sign-in is not listed: %s", said)
	}
	if said := must(t, 0, "logout", "notes", "there"); !strings.Contains(said, "signed out") {
		t.Errorf("logout: %s", said)
	}
	if said := must(t, 0, "login", "list", "--json"); strings.Contains(said, "notes.example.com") {
		t.Errorf("the sign-in is still listed: %s", said)
	}
	var out, errOut bytes.Buffer
	if code := cli.Run(t.Context(), []string{"logout", "notes", "there"}, strings.NewReader(""), &out, &errOut); code == 0 {
		t.Errorf("signing out of an unknown agent succeeds: %s", out.String())
	}
}

// A sign-in that has ended is reported with the command that signs in, before a call is refused.
func TestEndedSignIn(t *testing.T) {
	h := home.At(t.TempDir())
	t.Setenv("AMBIT_HOME", h.Dir())
	if err := os.MkdirAll(h.Agents(), 0o700); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(matrixAt(t, "https://notes.example.com/mcp"))
	if err == nil {
		err = os.WriteFile(filepath.Join(h.Agents(), "notes.json"), manifest, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	kept, err := credential.New(credential.JSON, `{"principal":"`+identity.LocalName()+
		`","resource":"https://notes.example.com/mcp","issuer":"https://login.example.com"}`, []string{"notes.example.com"})
	if err == nil {
		err = credential.Open(h).Set("notes", "signin:there:"+identity.LocalName(), kept.Of("matrix://agent/remote-test"))
	}
	if err != nil {
		t.Fatal(err)
	}
	const ended = "the sign-in for server there is no longer valid (ambit login notes there)"
	for code, args := range map[int][]string{
		0: {"agents"},
		3: {"why", "notes", "whoami"},
	} {
		if said := must(t, code, args...); !strings.Contains(said, ended) {
			t.Errorf("ambit %v does not report the ended sign-in: %s", args, said)
		}
	}
	if said := must(t, 0, "agents", "--json"); !strings.Contains(said, ended) {
		t.Errorf("ambit agents --json does not report the ended sign-in: %s", said)
	}
	var out, errOut bytes.Buffer
	if code := cli.Run(t.Context(), []string{"doctor"}, strings.NewReader(""), &out, &errOut); code != 3 ||
		!strings.Contains(out.String(), "✗ sign-ins: "+ended) {
		t.Errorf("ambit doctor exits with %d, want 3 and a report of the ended sign-in: %s", code, out.String())
	}
}
