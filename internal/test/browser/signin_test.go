package browser

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/test/output"
)

// envPages is the address to which xdg-open sends the pages that it is asked to open.
const envPages = "AMBIT_TEST_PAGES"

// passPage replaces xdg-open: it sends the address of the page to the test.
func passPage(args []string) int {
	resp, err := http.PostForm(os.Getenv(envPages), url.Values{"page": args})
	if err != nil {
		return 1
	}
	resp.Body.Close()
	return 0
}

// provider is an authorization server.
type provider struct{ issuer, origin string }

// startProvider starts a program that is an authorization server for a resource. Its access tokens are valid for 20
// seconds. ambit renews tokens that are valid for less than 30 seconds, so it renews them at each use.
func startProvider(t *testing.T, program, resource string) provider {
	t.Helper()
	installed, err := modules()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("the authorization server cannot be installed: %v", err)
	}
	dir := t.TempDir()
	text, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "provider.mjs"), text, 0o600)
	}
	if err == nil {
		err = os.Symlink(installed, filepath.Join(dir, "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "provider.mjs")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TOKEN_TTL=20", "RESOURCE="+resource)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // fails if the context of the test ended the program
		if t.Failed() {
			t.Logf("the authorization server printed:\n%s", log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	u, errURL := url.Parse(strings.TrimSpace(line))
	if err != nil || errURL != nil {
		t.Fatalf("the authorization server did not start: %q, %v\n%s", line, err, log.String())
	}
	return provider{u.String(), u.Scheme + "://" + u.Host}
}

// introspected reports whether the authorization server calls a token active, and returns the token's audience.
func (p provider) introspected(token string) (audience string, active bool) {
	req, err := http.NewRequest(http.MethodPost, p.origin+"/token/introspection", strings.NewReader(url.Values{"token": {token}}.Encode()))
	if err != nil {
		return "", false
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("server", "secret")
	var is struct {
		Active bool
		Aud    string
	}
	err = getJSON(req, &is)
	return is.Aud, err == nil && is.Active
}

// bound checks a token that is a JWT, and that the proof of a request belongs to it. It returns the token's audience.
func (p provider) bound(r *http.Request, address, token string) (audience string, err error) {
	req, err := http.NewRequest(http.MethodGet, p.issuer+"/jwks", nil)
	if err != nil {
		return "", err
	}
	var keys jose.JSONWebKeySet
	if err := getJSON(req, &keys); err != nil {
		return "", err
	}
	signed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return "", err
	}
	var claims struct {
		jwt.Claims
		Confirmed struct {
			JKT string `json:"jkt"`
		} `json:"cnf"`
	}
	if err := signed.Claims(keys, &claims); err != nil {
		return "", err
	}
	if err := claims.Validate(jwt.Expected{Issuer: p.issuer}); err != nil || len(claims.Audience) == 0 {
		return "", fmt.Errorf("the audience is %v: %w", claims.Audience, err)
	}
	proof, err := jwt.ParseSigned(r.Header.Get("DPoP"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return "", err
	}
	var proven struct {
		HTM string `json:"htm"`
		HTU string `json:"htu"`
		ATH string `json:"ath"`
	}
	key := proof.Headers[0].JSONWebKey
	if err := proof.Claims(key, &proven); err != nil {
		return "", err
	}
	thumb, err := key.Thumbprint(crypto.SHA256)
	sum := sha256.Sum256([]byte(token))
	encode := base64.RawURLEncoding.EncodeToString
	if err != nil || proven.HTM != r.Method || proven.HTU != address || proven.ATH != encode(sum[:]) || encode(thumb) != claims.Confirmed.JKT {
		return "", fmt.Errorf("the proof %+v does not fit the request, %v", proven, err)
	}
	return claims.Audience[0], nil
}

func getJSON(req *http.Request, into any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// notes is a remote server that needs tokens.
type notes struct {
	t       *testing.T
	address string
	from    provider
	bound   bool // tokens are bound to a key
	mcp     http.Handler

	mu     sync.Mutex
	tokens []string // the valid tokens, without duplicates
}

func startNotes(t *testing.T, bound bool) *notes {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami", Description: "Says that the caller is known."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "I know you"}}}, nil, nil
		})
	n := &notes{t: t, bound: bound}
	n.mcp = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	there := httptest.NewServer(n)
	t.Cleanup(there.Close)
	n.address = there.URL + "/mcp"
	return n
}

func (n *notes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme := "Bearer"
	if n.bound {
		scheme = "DPoP"
	}
	if r.URL.Path == "/.well-known/oauth-protected-resource/mcp" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q],"scopes_supported":["notes:read"]}`, n.address, n.from.issuer)
		return
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), scheme+" ")
	var audience string
	if ok && n.bound {
		var err error
		if audience, err = n.from.bound(r, n.address, token); err != nil {
			n.t.Logf("the server refuses a token: %v", err)
		}
	} else if ok {
		if audience, ok = n.from.introspected(token); !ok {
			audience = ""
		}
	}
	if audience != n.address {
		w.Header().Set("WWW-Authenticate", scheme)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	n.mu.Lock()
	if !slices.Contains(n.tokens, token) {
		n.tokens = append(n.tokens, token)
	}
	n.mu.Unlock()
	n.mcp.ServeHTTP(w, r)
}

// TestServerSignIn signs in to remote servers in a real browser, at two independent authorization servers. The tokens
// expire and are renewed, the authorization server forgets them, and the person signs in again.
func TestServerSignIn(t *testing.T) {
	for name, tt := range map[string]struct {
		program string
		bound   bool
	}{
		"oidc-provider": {program: filepath.Join("..", "..", "store", "identity", "testdata", "provider", "remote.mjs")},
		"better-auth":   {program: "better.mjs", bound: true},
	} {
		t.Run(name, func(t *testing.T) {
			there := startNotes(t, tt.bound)
			there.from = startProvider(t, tt.program, there.address)
			p := newPerson(t)
			manifest := filepath.Join(p.d.dir, "notes.json")
			if err := os.WriteFile(manifest, []byte(notesManifest(there.address)), 0o600); err != nil {
				t.Fatal(err)
			}
			command := "ambit login " + manifest + " there"
			p.ambit(3, command, "call", manifest, "whoami")
			p.signIn(there.from, manifest)
			for range 2 {
				p.ambit(0, "I know you", "call", manifest, "whoami")
			}
			if len(there.tokens) < 3 {
				t.Errorf("the server got %d different tokens, want at least 3", len(there.tokens))
			}
			resp, err := http.Post(there.from.origin+"/forget", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			p.ambit(3, "is no longer valid ("+command+")", "call", manifest, "whoami")
			p.signIn(there.from, manifest)
			p.ambit(0, "I know you", "call", manifest, "whoami")
			p.ambit(0, "signed out", "logout", manifest, "there")
			p.ambit(3, command, "call", manifest, "whoami")
			p.ambit(0, "", "journal", "show", "--json")
			for _, token := range there.tokens {
				if strings.Contains(p.printed.String(), token) {
					t.Error("a token was printed or recorded")
				}
			}
		})
	}
}

// person uses ambit and a browser.
type person struct {
	*browser
	pages   chan string
	printed output.Buffer
}

func newPerson(t *testing.T) *person {
	t.Helper()
	p := &person{pages: make(chan string, 9)}
	opener := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { p.pages <- r.FormValue("page") }))
	t.Cleanup(opener.Close)
	d := &daemon{t: t, dir: t.TempDir()}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(d.dir, "xdg-open"))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.env = append(os.Environ(), envAmbit+"=1", "AMBIT_DEV=1", "AMBIT_HOME="+filepath.Join(d.dir, "home"),
		"PATH="+d.dir+string(os.PathListSeparator)+os.Getenv("PATH"), envPages+"="+opener.URL)
	p.browser = d.browse(t)
	p.expected = "Failed to load resource" // an icon that does not exist, and a font on the internet
	return p
}

// ambit runs a command, and checks its exit code and a part of its output.
func (p *person) ambit(want int, says string, args ...string) {
	p.t.Helper()
	cmd := p.d.command(args...)
	out, _ := cmd.CombinedOutput() // the exit code is checked below
	_, _ = p.printed.Write(out)
	if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(out), says) {
		p.t.Fatalf("ambit %v exits with %d, want %d and %q: %s", args, code, want, says, out)
	}
}

// signIn runs ambit login, and signs in on the pages that ambit opens in the browser.
func (p *person) signIn(from provider, manifest string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "login", manifest, "there")
	cmd.Env, cmd.Stdout, cmd.Stderr = p.d.env, &p.printed, &p.printed
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case page := <-p.pages:
		p.do(chromedp.Navigate(page))
	case err := <-ended:
		p.t.Fatalf("ambit login opened no page: %v\n%s", err, p.printed.String())
	}
	from.agree(p.browser, "/callback")
	p.text("body", "You can close this page")
	if err := <-ended; err != nil || !strings.Contains(p.printed.String(), "signed in to server there") {
		p.t.Fatalf("ambit login: %v\n%s", err, p.printed.String())
	}
}

// agree signs in and agrees on the pages of the authorization server, until the browser is at the given path of ambit.
func (p provider) agree(b *browser, end string) {
	b.t.Helper()
	atEnd := `location.origin !== '` + p.origin + `' && location.pathname.startsWith('` + end + `')`
	// The pages need no other input than the name and the password. The pages of ambit before and after them can have
	// forms too.
	atForm := `location.origin === '` + p.origin + `' && document.forms.length === 1`
	for at := `""`; ; {
		b.until(`location.href !== ` + at + ` && document.readyState === 'complete' && (` + atEnd + ` || ` + atForm + `)`)
		// One script looks and clicks, because the browser can move on between two scripts.
		switch page := ask[string](b, `(() => {
  if (`+atEnd+`) return 'end'
  if (!(`+atForm+`)) return 'moved on'
  const e = document.forms[0].elements, page = JSON.stringify(location.href)
  if (e.login) { e.login.value = 'ada'; e.password.value = 'a password for the test' }
  document.querySelector('button[type=submit]').click()
  return page })()`); page {
		case "end":
			return
		case "moved on":
		default:
			at = page
		}
	}
}

// TestConnectInTheConsole signs in to a remote server with the button of the console. The person's calls then use the
// sign-in, and an answer in a browser that has begun no sign-in is refused.
func TestConnectInTheConsole(t *testing.T) {
	there := startNotes(t, true)
	there.from = startProvider(t, "better.mjs", there.address)
	t.Setenv("AMBIT_DEV", "1")
	d := start(t, map[string]string{"agents/notes.json": notesManifest(there.address)})
	b := d.browse(t)
	b.expected = "Failed to load resource" // an icon that does not exist, and the refusal below
	b.signIn()
	b.open("/agents/notes")
	b.text("#servers", "you are not signed in")
	b.look("connect-none")
	b.do(chromedp.Click(chromedp.CSS(`form[action$="/connect"] button`)), chromedp.WaitVisible(chromedp.CSS("#continue")))
	b.text("#continue", strings.TrimPrefix(there.from.origin, "http://"))
	b.look("connect")
	b.do(chromedp.Click(chromedp.CSS("#continue")))
	there.from.agree(b, b.home+"/agents/notes")
	b.text("#servers", "you are signed in")
	b.look("connect-in")
	b.open("/agents/notes/tools/whoami")
	b.do(chromedp.Click(chromedp.CSS("button.primary")))
	b.text(".outcome", "I know you")

	stranger := d.browse(t)
	stranger.expected = "Failed to load resource"
	stranger.do(chromedp.Navigate(d.url + "/login/answer?code=c&state=s"))
	stranger.text("body", "This browser has not begun a sign-in to a server")
}

func notesManifest(address string) string {
	return `{"schema_version": 1, "agent": "matrix://agent/notes", "allowed_side_effects": ["read"], "servers": [
  {"alias": "there", "transport": "http", "endpoint": "` + address + `", "version": "1.0.0",
   "tools": [{"name": "whoami", "side_effect_class": "read"}]}]}`
}
