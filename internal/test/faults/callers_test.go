//go:build linux

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// gateways are daemons that share a database. The test kills and restarts them during calls.
type gateways struct {
	homes []*fixture
	args  []string

	mu      sync.Mutex
	running []*daemon
	printed []*daemon // all that ever ran
}

// pick returns one of the daemons for a person.
func (g *gateways) pick(key string) *daemon {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := *g.running[rand.IntN(len(g.running))]
	d.key = key
	return &d
}

func (g *gateways) start(i int) {
	d := g.homes[i].serve(g.args...)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[i] = d
	g.printed = append(g.printed, d)
}

// stop sends a signal to a daemon and starts another one in its place.
func (g *gateways) stop(i int, how syscall.Signal) {
	g.mu.Lock()
	pid := g.running[i].pid
	g.mu.Unlock()
	if err := syscall.Kill(pid, how); err != nil {
		g.homes[i].t.Error(err)
	}
	g.start(i)
}

// TestCallersTokens makes interleaved calls of several principals over two gateways, which are killed meanwhile. Each
// request to the remote server contains the token of its own caller. No token appears anywhere else.
func TestCallersTokens(t *testing.T) { testCallers(t, 6, 240, 2, 3*time.Second) }

// testCallers makes calls with tokens that ambit renews after the given time.
func testCallers(t *testing.T, persons, calls, kills int, renewal time.Duration) {
	t.Parallel()
	cluster := statetest.NewCluster(t)
	remote := newProvider(t, int((30*time.Second + renewal).Seconds())) // ambit renews a token 30 seconds before it expires
	g := &gateways{args: []string{"--store", cluster.Place()}, running: make([]*daemon, 2)}
	for range g.running {
		h := newFixture(t, "-", 0)
		h.env = append(h.env, "AMBIT_DEV=1", "GOTRACEBACK=all")
		h.declare(map[string]any{"transport": "http", "endpoint": remote.endpoint()}, 0)
		g.homes = append(g.homes, h)
	}
	first := g.homes[0]
	keys := newKeys(t, first.home(), cluster.Place(), persons)
	share(t, first.home(), g.homes[1].home())
	g.start(0)
	g.start(1)
	var answers sync.Map
	call := func(i int) { answers.Store(callUntilAnswered(t, g, remote, keys[i], person(i)), true) }
	refused, err := g.pick(keys[0]).send("POST", "/api/v1/agents/till/call", callOf(person(0)))
	if err != nil || refused.Error.Code != "credential_missing" || !strings.Contains(refused.Error.Hint, "ambit login --url http") {
		t.Errorf("a call without a sign-in: %+v, %v", refused, err)
	}
	var made atomic.Int64
	var work sync.WaitGroup
	todo, due := make(chan int), make(chan bool, kills+1)
	for range 16 {
		work.Go(func() {
			for i := range todo {
				call(i)
				if made.Add(1)%int64(calls/(kills+1)) == 0 {
					due <- true
				}
			}
		})
	}
	work.Go(func() {
		for n := range kills {
			<-due
			t.Logf("killing a gateway after %d calls", made.Load())
			how := syscall.SIGKILL
			if n == kills-1 {
				how = syscall.SIGQUIT // prints the stacks of all goroutines
			}
			g.stop(n%2, how)
		}
	})
	for n := range calls {
		todo <- n % persons
	}
	close(todo)
	work.Wait()
	wrong, right := remote.faults()
	for _, w := range wrong[:min(len(wrong), 10)] {
		t.Error(w)
	}
	if right < calls {
		t.Errorf("%d of %d calls reached the server with the caller's token", right, calls)
	}
	t.Logf("%d calls of %d principals; %d tokens issued; %d used twice; %d kills", right, persons, remote.renewed, remote.reused, kills)
	if remote.reused > kills { // a process that dies during a renewal takes the new token with it
		t.Errorf("%d refresh tokens were used twice", remote.reused)
	}
	g.search(cluster, &answers)
}

func person(i int) string { return fmt.Sprintf("person-%d@example.com", i) }

func callOf(me string) string { return `{"tool":"look","arguments":{"me":"` + me + `"}}` }

// newKeys creates one API key for each person.
func newKeys(t *testing.T, dir, place string, persons int) (keys []string) {
	t.Helper()
	s, err := store.Open(t.Context(), home.At(dir), place)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range persons {
		spec := identity.KeySpec{Name: person(i), Principal: person(i), Agents: []string{"till"}}
		_, key, err := identity.NewAPIKeys(s.Authority).New(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// share copies the root key, which replicas have in common, and nothing else.
func share(t *testing.T, from, to string) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(from, "keys", "root"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(to, "keys"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "keys", "root"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// callUntilAnswered makes a call at one of the gateways. If the caller is not signed in, it signs in first. If a gateway
// dies, or another process is renewing the token, it tries again.
func callUntilAnswered(t *testing.T, g *gateways, remote *provider, key, me string) string {
	var last string
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && !t.Failed(); {
		a, err := g.pick(key).send("POST", "/api/v1/agents/till/call", callOf(me))
		switch {
		case err != nil:
			last = err.Error()
		case a.status == http.StatusOK:
			return a.text
		case a.Error.Code == "credential_missing":
			if err := signIn(g, remote, key, me); err != nil {
				last = err.Error()
			}
			continue
		default:
			last = a.text
		}
		time.Sleep(50 * time.Millisecond) // a gateway is down
	}
	t.Errorf("a call of %s was not answered: %s", me, last)
	return last
}

// signIn signs a caller in. It begins at one gateway and may complete at another one.
func signIn(g *gateways, remote *provider, key, me string) error {
	const back = "http://127.0.0.1:1/callback"
	begun, err := g.pick(key).send("POST", "/api/v1/signins", `{"agent":"till","server":"till","redirect_uri":"`+back+`"}`)
	if err != nil || begun.status != http.StatusOK {
		return fmt.Errorf("beginning a sign-in: %s, %w", begun.text, err)
	}
	var page struct{ URL string }
	if err := json.Unmarshal([]byte(begun.text), &page); err != nil {
		return err
	}
	at, err := visit(g.homes[0].t.Context(), page.URL, me)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"answer": at.RawQuery})
	if err != nil {
		return err
	}
	done, err := g.pick(key).send("POST", "/api/v1/signins/complete", string(body))
	if err != nil || done.status != http.StatusOK {
		return fmt.Errorf("completing a sign-in: %s, %w", done.text, err)
	}
	return nil
}

// login runs ambit login, and signs a person in on the page that it prints.
func (h *fixture) login(me string, args ...string) {
	h.t.Helper()
	login := exec.CommandContext(h.t.Context(), h.binary, append([]string{"login", "--no-browser", "--json"}, args...)...)
	login.Env, login.Dir = h.env, h.dir
	var out bytes.Buffer
	login.Stdout = &out
	notes, err := login.StderrPipe()
	if err == nil {
		err = login.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	for lines := bufio.NewScanner(notes); lines.Scan(); {
		page, ok := strings.CutPrefix(lines.Text(), "open ")
		if !ok {
			continue
		}
		back, err := visit(h.t.Context(), page, me)
		if err != nil {
			h.t.Fatal(err)
		}
		resp, err := http.Get(back.String())
		if err != nil {
			h.t.Fatal(err)
		}
		resp.Body.Close()
	}
	if err := login.Wait(); err != nil || !strings.Contains(out.String(), `"renewable": true`) {
		h.t.Fatalf("ambit login: %v: %s", err, out.String())
	}
}

// visit opens the page of a sign-in as a person, and returns the address that the page sends the browser to.
func visit(ctx context.Context, page, me string) (*url.URL, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Person", me)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	return resp.Location()
}

// search looks for tokens in everything that the gateways wrote.
func (g *gateways) search(cluster *statetest.Cluster, answers *sync.Map) {
	t := g.homes[0].t
	t.Helper()
	found := func(where string, text []byte) {
		if bytes.Contains(text, []byte(canary)) {
			t.Errorf("a token is in %s", where)
		}
	}
	dumps := 0
	for _, d := range g.printed {
		text := d.printed.String()
		found("the output of a daemon", []byte(text))
		dumps += strings.Count(text, "SIGQUIT: quit")
	}
	if dumps != 1 {
		t.Errorf("%d crash dumps were searched, want 1", dumps)
	}
	answers.Range(func(text, _ any) bool { found("an answer", []byte(text.(string))); return true })
	for _, d := range g.running {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", d.pid, file))
			if err != nil {
				t.Error(err)
			}
			found(file+" of a daemon", text)
		}
	}
	// The files of the database contain its tables and its log.
	cluster.Kill()
	for _, dir := range []string{g.homes[0].dir, g.homes[1].dir, filepath.Dir(cluster.Socket())} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			found(path, text)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestLoginAtDaemon signs a caller in with ambit login --url, and out again.
func TestLoginAtDaemon(t *testing.T) {
	t.Parallel()
	remote := newProvider(t, 3600)
	h := newFixture(t, "-", 0)
	h.env = append(h.env, "AMBIT_DEV=1")
	h.declare(map[string]any{"transport": "http", "endpoint": remote.endpoint()}, 0)
	h.login("operator", h.agent, "till")
	d := h.serve()
	stdout, stderr, code := h.ambit("key", "new", "--json", "--agents", "till", "--principal", person(1))
	var made struct{ Key string }
	if err := json.Unmarshal([]byte(stdout), &made); err != nil || code != 0 {
		t.Fatalf("ambit key new: %s %s", stdout, stderr)
	}
	caller := *d
	caller.key = made.Key
	keyFile := filepath.Join(h.dir, "key")
	if err := os.WriteFile(keyFile, []byte(made.Key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := []string{"till", "till", "--url", d.url, "--key-file", keyFile}
	if a, err := d.send("POST", "/api/v1/agents/till/call", callOf("operator")); err != nil || a.status != http.StatusOK {
		t.Errorf("a call of the operator: %s, %v", a.text, err)
	}
	// The operator's sign-in does not serve others.
	if a, err := caller.send("POST", "/api/v1/agents/till/call", callOf(person(1))); err != nil || a.Error.Code != "credential_missing" {
		t.Errorf("a call of a caller without a sign-in: %s, %v", a.text, err)
	}
	h.login(person(1), at...)
	if a, err := caller.send("POST", "/api/v1/agents/till/call", callOf(person(1))); err != nil || a.status != http.StatusOK {
		t.Errorf("a call after the sign-in: %s, %v", a.text, err)
	}
	list, err := caller.send("GET", "/api/v1/signins", "")
	if err != nil || !strings.Contains(list.text, `"principal":"`+person(1)+`"`) || strings.Contains(list.text, canary) {
		t.Errorf("the list of sign-ins: %s, %v", list.text, err)
	}
	listed := func() string {
		stdout, stderr, code := h.ambit("login", "list", "--json", "--url", d.url, "--key-file", keyFile)
		if code != 0 {
			t.Errorf("ambit login list: exit %d: %s", code, stderr)
		}
		return stdout
	}
	if list := listed(); strings.Count(list, `"agent"`) != 1 || !strings.Contains(list, person(1)) {
		t.Errorf("the caller's sign-ins: %s", list) // the operator's own sign-in is not listed
	}
	if stdout, stderr, code := h.ambit(append([]string{"logout"}, at...)...); code != 0 || !strings.Contains(stdout, "signed out") {
		t.Errorf("ambit logout: %s%s", stdout, stderr)
	}
	if list := listed(); strings.Contains(list, `"agent"`) {
		t.Errorf("the caller's sign-ins after the sign-out: %s", list)
	}
	if a, err := caller.send("POST", "/api/v1/agents/till/call", callOf(person(1))); err != nil || a.Error.Code != "credential_missing" {
		t.Errorf("a call after the sign-out: %s, %v", a.text, err)
	}
	if _, stderr, code := h.ambit(append([]string{"logout"}, at...)...); code != 1 || !strings.Contains(stderr, "not signed in") {
		t.Errorf("signing out twice: exit %d: %s", code, stderr)
	}
	if _, stderr, code := h.ambit("logout", "till", "till", "--url", "http://ambit.example.com", "--key-file", keyFile); code != 2 ||
		!strings.Contains(stderr, "https://") {
		t.Errorf("a key over plain http: exit %d: %s", code, stderr)
	}
	if wrong, _ := remote.faults(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// TestSignInPageOfDaemon calls a tool with a client that can open pages. The daemon asks the client to open its page, on
// which the caller enters their key and signs in. Then the daemon notifies the client, and the call succeeds.
func TestSignInPageOfDaemon(t *testing.T) {
	t.Parallel()
	remote := newProvider(t, 3600)
	h := newFixture(t, "-", 0)
	h.env = append(h.env, "AMBIT_DEV=1")
	h.declare(map[string]any{"transport": "http", "endpoint": remote.endpoint()}, 0)
	h.login("operator", h.agent, "till")
	d := h.serve()
	keys := map[string]string{}
	for _, name := range []string{person(1), person(2)} {
		stdout, stderr, code := h.ambit("key", "new", "--json", "--agents", "till", "--principal", name)
		var made struct{ Key string }
		if err := json.Unmarshal([]byte(stdout), &made); err != nil || code != 0 {
			t.Fatalf("ambit key new: %s %s", stdout, stderr)
		}
		keys[name] = made.Key
	}
	complete := make(chan string, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		ElicitationCompleteHandler: func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
			complete <- r.Params.ElicitationID
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: d.url + "/mcp/till", HTTPClient: &http.Client{Transport: bearer(keys[person(1)])},
	}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	look := func() (*mcp.CallToolResult, error) {
		return session.CallTool(t.Context(), &mcp.CallToolParams{Name: "look", Arguments: map[string]any{"me": person(1)}})
	}
	_, err = look()
	e, _ := errors.AsType[*jsonrpc.Error](err)
	if e == nil || e.Code != mcp.CodeURLElicitationRequired {
		t.Fatalf("a call without a sign-in: %v", err)
	}
	var asked struct{ Elicitations []mcp.ElicitParams }
	if err := json.Unmarshal(e.Data, &asked); err != nil || len(asked.Elicitations) != 1 {
		t.Fatalf("the question: %s, %v", e.Data, err)
	}
	page := asked.Elicitations[0].URL
	if !strings.HasPrefix(page, d.url+"/login/server?") || strings.Contains(page, person(1)) {
		t.Errorf("the page is %s", page)
	}
	// Whoever enters a key signs in for themselves, even if the client of someone else opened the page.
	for _, name := range []string{person(2), person(1)} {
		if name == person(1) && len(complete) > 0 {
			t.Error("the sign-in of someone else completed the question")
		}
		signInOnPage(t, page, keys[name], name)
	}
	if id := <-complete; id != asked.Elicitations[0].ElicitationID {
		t.Errorf("the notification names %s", id)
	}
	if result, err := look(); err != nil || result.IsError {
		t.Errorf("a call after the sign-in: %+v, %v", result, err)
	}
	if wrong, right := remote.faults(); len(wrong) > 0 || right != 1 {
		t.Errorf("%d right calls; %v", right, wrong)
	}
}

// bearer adds a key to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// signInOnPage enters a key on a daemon's page, and signs a person in.
func signInOnPage(t *testing.T, page, key, me string) {
	t.Helper()
	at, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	read := func(resp *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || strings.Contains(string(body), key) {
			t.Fatalf("%s: %d %s, %v", resp.Request.URL.Path, resp.StatusCode, body, err)
		}
		return string(body)
	}
	form := at.Query()
	read(browser.Get(page))
	form.Set("key", key)
	text := read(browser.PostForm(page, form))
	link := regexp.MustCompile(`id="continue" href="([^"]+)"`).FindStringSubmatch(text)
	if link == nil {
		t.Fatalf("there is no link to the provider: %s", text)
	}
	back, err := visit(t.Context(), html.UnescapeString(link[1]), me)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(back.String()) // another browser
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("another browser completes the sign-in: %+v, %v", resp, err)
	}
	resp.Body.Close()
	if text := read(browser.Get(back.String())); !strings.Contains(text, me) {
		t.Errorf("the last page: %s", text)
	}
}
