//go:build linux

package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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
func TestCallersTokens(t *testing.T) { testCallers(t, 6, 240, 2) }

func testCallers(t *testing.T, persons, calls, kills int) {
	t.Parallel()
	cluster := statetest.NewCluster(t)
	remote := newProvider(t, 33) // ambit renews a token 30 seconds before it expires
	g := &gateways{args: []string{"--store", cluster.Place()}, running: make([]*daemon, 2)}
	for range g.running {
		h := newFixture(t, "-", 0)
		h.env = append(h.env, "AMBIT_DEV=1", "GOTRACEBACK=all")
		h.declare(map[string]any{"transport": "http", "endpoint": remote.endpoint()}, 0)
		g.homes = append(g.homes, h)
	}
	first := g.homes[0]
	keys := make([]string, persons)
	for i := range keys {
		stdout, stderr, code := first.ambit("key", "new", "--json", "--agents", "till", "--principal", person(i),
			"--store", cluster.Place())
		var doc struct{ Key string }
		if code != 0 || json.Unmarshal([]byte(stdout), &doc) != nil || doc.Key == "" {
			t.Fatalf("ambit key new: %s %s", stdout, stderr)
		}
		keys[i] = doc.Key
	}
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
	todo := make(chan int)
	for range 2 * len(g.running) * 4 {
		work.Go(func() {
			for i := range todo {
				call(i)
				made.Add(1)
			}
		})
	}
	work.Go(func() {
		for n := range kills {
			first.until("more calls are made", func() bool { return int(made.Load()) > (n+1)*calls/(kills+1) || t.Failed() })
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
	req, err := http.NewRequestWithContext(g.homes[0].t.Context(), http.MethodGet, page.URL, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Person", me)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	at, err := url.Parse(resp.Header.Get("Location"))
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
