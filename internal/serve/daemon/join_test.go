//go:build linux || darwin

package daemon

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// joinRig is a rig with a socket for joining processes.
type joinRig struct {
	*rig
	client *Client
	stop   func() // stops listening and waits for the sessions
}

func newJoinRig(t *testing.T, change func(*rig, *Options)) *joinRig {
	t.Helper()
	r := newRig(t, map[string]string{"a/agent.json": matrix("a"), "b.json": matrix("b"), "bad.json": `{"schema_version": 1, "agent": 7}`},
		func(r *rig, o *Options) {
			o.JoinTerms = Terms{"version": "1", "settings": "x"}
			if change != nil {
				change(r, o)
			}
		})
	dir, err := os.MkdirTemp("", "join") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := ListenJoin(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.ServeJoins(ctx, l)
	}()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	r.Prove(t.Context())
	return &joinRig{r, &Client{Presence: Presence{Socket: socket}}, stop}
}

// hello returns the Hello of a process that runs the agent b in the same way as the daemon.
func (r *joinRig) hello() *Hello {
	r.t.Helper()
	path := filepath.Join(r.folder, "b.json")
	m, err := manifest.Load(path, manifest.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	seal, err := Seal(path, m)
	if err != nil {
		r.t.Fatal(err)
	}
	h := &Hello{Terms: maps.Clone(r.options.JoinTerms), Agent: "b", Seal: seal, Work: "/"}
	h.SetEnvironment(os.Environ())
	return h
}

func (r *joinRig) dial() *Joined {
	r.t.Helper()
	conn, err := r.client.DialJoin()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (j *Joined) say(t *testing.T, line string) {
	t.Helper()
	if _, err := j.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
}

func (j *Joined) hear(t *testing.T) string {
	t.Helper()
	line, err := j.Lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func TestJoin(t *testing.T) {
	r := newJoinRig(t, nil)
	conn := r.dial()
	if err := conn.Ask(r.hello()); err != nil {
		t.Fatal(err)
	}
	conn.say(t, "echo")
	if got := conn.hear(t); !strings.Contains(got, `"b `+identity.LocalName()+" ") {
		t.Errorf("the call was made as %s", got)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if line, err := conn.Lines.ReadString('\n'); err == nil {
		t.Errorf("after the end of the input, the daemon sent %q", line)
	}
}

func TestJoinRefuses(t *testing.T) {
	allowed := map[string]string{}
	r := newJoinRig(t, func(_ *rig, o *Options) {
		o.Allowed = func() (map[string]string, error) { return allowed, nil }
	})
	for name, tt := range map[string]struct {
		change func(*Hello)
		want   string
	}{
		"another version":     {func(h *Hello) { h.Terms["version"] = "2" }, "another version"},
		"other settings":      {func(h *Hello) { h.Terms["settings"] = "" }, "another settings"},
		"more terms":          {func(h *Hello) { h.Terms["new"] = "" }, "another version of ambit"},
		"no terms":            {func(h *Hello) { h.Terms = nil }, "it has another"},
		"another lock file":   {func(h *Hello) { h.Seal = strings.Replace(h.Seal, h.Seal[:1], "x", 1) }, "ambit reload"},
		"no seal":             {func(h *Hello) { h.Seal = "" }, "ambit reload"},
		"another agent":       {func(h *Hello) { h.Agent = "agent" }, "ambit reload"},
		"an unknown agent":    {func(h *Hello) { h.Agent = "c" }, "does not serve"},
		"a rejected agent":    {func(h *Hello) { h.Agent = "bad" }, "does not serve"},
		"a large environment": {func(h *Hello) { h.Variables["X"] = strings.Repeat("x", maxHello) }, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			h := r.hello()
			tt.change(h)
			err := r.dial().Ask(h)
			if _, refused := errors.AsType[*NotJoinedError](err); !refused || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	refuse := func(name string, want string) {
		t.Helper()
		if err := r.dial().Ask(r.hello()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	allowed["b"] = "more"
	refuse("with a right that was allowed later", "ambit reload")
	clear(allowed)
	r.agent("b").unshareable = errors.New("not alike")
	refuse("with an agent that differs", "not alike")
	r.agent("b").unshareable = nil
	e := r.fleet.current.Load().byName["b"]
	e.park(e.visits)
	refuse("with stopped servers", "idle")
}

func TestJoinKnowsVariables(t *testing.T) {
	t.Setenv("JOIN_SAME", "one")
	t.Setenv("JOIN_OTHER", "one")
	t.Setenv("JOIN_EMPTY", "")
	var h Hello
	h.SetEnvironment([]string{"JOIN_SAME=one", "JOIN_OTHER=two", "JOIN_MORE=x"})
	for name, want := range map[string]bool{
		"JOIN_SAME": true, "JOIN_OTHER": false, "JOIN_MORE": false, "JOIN_EMPTY": true, "JOIN_NEITHER": true,
	} {
		if got := h.sameVariable(name); got != want {
			t.Errorf("sameVariable(%s) = %v", name, got)
		}
	}
	if strings.Contains(string(encode(h)), "one") {
		t.Error("the Hello contains a value")
	}
}

// Neither side accepts a process of another user.
func TestJoinChecksUser(t *testing.T) {
	r := newJoinRig(t, func(*rig, *Options) { ownUser = func() int { return os.Geteuid() + 1 } })
	hello := r.hello()
	t.Cleanup(func() { r.stop(); ownUser = os.Geteuid })
	if _, err := r.client.DialJoin(); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("DialJoin returned %v", err)
	}
	conn, err := net.Dial("unix", r.client.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(encode(hello)) // the daemon may have closed the connection already
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("the daemon answered a process of another user")
	}
}

// When the agent is replaced, running calls finish, but no call begins.
func TestJoinedAgentIsReplaced(t *testing.T) {
	hold, calls := make(chan struct{}), make(chan string, 10)
	r := newJoinRig(t, func(r *rig, _ *Options) {
		r.make = func(f *fake) { f.hold, f.calls = hold, calls; close(f.ready) }
	})
	conn := r.dial()
	if err := conn.Ask(r.hello()); err != nil {
		t.Fatal(err)
	}
	conn.say(t, "echo")
	<-calls
	r.write("b.json", strings.Replace(matrix("b"), "1.0.0", "1.0.1", 1))
	old := r.agent("b")
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(hold)
	if got := conn.hear(t); !strings.Contains(got, `"b `) {
		t.Errorf("the running call got %s", got)
	}
	if line, err := conn.Lines.ReadString('\n'); err == nil {
		t.Errorf("got another line: %s", line)
	}
	<-old.closed
	if n := old.late.Load(); n > 0 {
		t.Errorf("%d calls were open when the agent was closed", n)
	}
	if err := r.dial().Ask(r.hello()); err != nil {
		t.Errorf("the new agent does not accept the client: %v", err)
	}
}

// The daemon ends, even if clients are joined or have not sent anything.
func TestJoinedAtShutdown(t *testing.T) {
	r := newJoinRig(t, nil)
	silent, joined := r.dial(), r.dial()
	if err := joined.Ask(r.hello()); err != nil {
		t.Fatal(err)
	}
	r.fleet.close(t.Context())
	r.stop()
	for _, conn := range []*Joined{silent, joined} {
		if line, err := conn.Lines.ReadString('\n'); err == nil {
			t.Errorf("the daemon sent %q", line)
		}
	}
	if _, err := r.client.DialJoin(); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("after the end, DialJoin returned %v", err)
	}
}

// A daemon that was killed leaves a socket behind. No process joins it, and the next daemon removes it.
func TestStaleSocket(t *testing.T) {
	h := home.At(t.TempDir())
	keyFile, err := WriteKey(h, "key")
	if err != nil {
		t.Fatal(err)
	}
	stale := SocketFile(keyFile)
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead := Presence{URL: "http://127.0.0.1:1", KeyFile: keyFile, Socket: stale}
	if _, err := Announce(t.Context(), h, dead); err != nil {
		t.Fatal(err)
	}
	c, err := FindDaemon(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.DialJoin(); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("DialJoin returned %v", err)
	}
	if _, err := Announce(t.Context(), h, Presence{URL: "http://127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket still exists: %v", err)
	}
}

// A failed accept, for example without free file descriptors, does not end joining.
func TestJoinAfterAFailedAccept(t *testing.T) {
	r := newRig(t, map[string]string{"b.json": matrix("b")}, nil)
	dir, err := os.MkdirTemp("", "join")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := ListenJoin(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // every accept fails
		t.Fatal(err)
	}
	if _, err := l.AcceptUnix(); err == nil {
		t.Fatal("the accept did not fail")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.ServeJoins(ctx, l)
	}()
	select {
	case <-ended:
		t.Fatal("joining ended after a failed accept")
	case <-time.After(acceptPause / 2):
	}
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	conn, err := (&Client{Presence: Presence{Socket: socket}}).DialJoin()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Ask(&Hello{}); err == nil || strings.Contains(err.Error(), "does not answer") {
		t.Errorf("the daemon answered %v", err)
	}
	cancel()
	<-ended
}
