//go:build unix

package toolserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

func TestProvenServersAreCalled(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo", "fail", "protocol_error", "log"}, "-page", "1")
	r.fake("two", []string{"echo", "log:write"}, "-do", "modern")
	m := r.proven()

	proofs := m.Proofs()
	if proofs[0].Alias != "one" || proofs[1].Alias != "two" || !m.Proven() {
		t.Errorf("got the proofs %+v, want the proofs of the servers one and two", proofs)
	}
	if got := []string{proofs[0].Protocol, proofs[1].Protocol}; !reflect.DeepEqual(got, []string{"2025-11-25", "2026-07-28"}) {
		t.Errorf("got the protocols %v", got)
	}
	// Definitions and results are exactly the bytes that the server sent.
	for _, tool := range r.agent.Tools {
		if got := string(m.Definition(&tool)); got != definition(tool.Name) {
			t.Errorf("the definition of %s is %s", tool.Name, got)
		}
	}
	result, refusal := r.call(m, "one", "echo", `{"a": 12345678901234567890}`)
	const want = `{"content":[{"type":"text","text":"{\"a\": 12345678901234567890}"}],"odd":[1.50,{"_meta":null}]}`
	if refusal != nil || string(result.Raw) != want || result.IsError || result.Duration <= 0 {
		t.Errorf("echo: got %s and refusal %v, want %s", result.Raw, refusal, want)
	}
	// If the server answers with an error, the call has a result and no refusal.
	for _, tool := range []string{"fail", "protocol_error"} {
		result, refusal := r.call(m, "one", tool, `{}`)
		if refusal != nil || !result.IsError || !strings.Contains(string(result.Raw), `"text":`) {
			t.Errorf("%s: got %s and refusal %v, want an error result", tool, result.Raw, refusal)
		}
	}
	if _, refusal := r.call(m, "one", "log", `{}`); refusal != nil {
		t.Error(refusal)
	}
	r.until("the server's log message is logged", func() bool { return strings.Contains(r.log(), "one: warning: the disk is full") })
	if got := r.progress(); !strings.Contains(got, "one: ready") || !strings.Contains(got, "two: starting") {
		t.Errorf("got the progress %q", got)
	}
	_, err := m.Act(t.Context(), &agent.Tool{Name: "elsewhere", Binding: agent.OnServer{Alias: "three"}}, &call.Call{})
	is(t, err.(*call.Refusal), call.UnknownTool, call.NoEffect, false)
	m.Close()
	_, refusal = r.call(m, "one", "echo", `{}`)
	is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
}

func TestCallsRunSideBySide(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo", "hang"})
	m := r.proven()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.act(ctx, m, "one", "hang", &call.Call{}) }) // other calls do not wait for this one
	for i := range 50 {
		wg.Go(func() {
			result, refusal := r.call(m, "one", "echo", fmt.Sprintf(`{"i":%d}`, i))
			if refusal != nil || !strings.Contains(string(result.Raw), fmt.Sprintf(`{\"i\":%d}`, i)) {
				t.Errorf("call %d: got %s and refusal %v", i, result.Raw, refusal)
			}
		})
	}
	r.until("the call hangs", func() bool { return r.read("one/hanging") != "" })
	cancel()
	wg.Wait()
}

// All servers start at the same time. Each of these two servers answers only after the other has started.
func TestServersStartTogether(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo"}, "-meet", "../here-one,../here-two")
	r.fake("two", []string{"echo"}, "-meet", "../here-two,../here-one")
	m := r.proven()
	r.works(m, "one")
	r.works(m, "two")
}

// The refusal of a bad server contains the reason, and other servers work.
func TestBadServers(t *testing.T) {
	tests := []struct {
		name, do string
		code     call.Code
		words    []string
	}{
		{"exits immediately", "exit", call.ServerUnavailable, []string{"exit status 3", "the database is on fire"}},
		{"sends broken JSON", "broken-list", call.ServerUnavailable, []string{"malformed"}},
		{"sends a line of 100 MB", "huge-list", call.ServerUnavailable, []string{"larger than the limit of 68157440 bytes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.fake("bad", []string{"echo"}, "-do", tt.do)
			r.fake("good", []string{"echo"})
			m := r.start()
			refused(t, m.Proofs()[0], tt.code, tt.words...)
			if m.Proven() {
				t.Error("Proven returned true although a server failed")
			}
			_, refusal := r.call(m, "bad", "echo", `{}`)
			is(t, refusal, tt.code, call.NoEffect, tt.code == call.ServerUnavailable)
			r.works(m, "good")
		})
	}
}

// The start of a server that never answers the greeting times out before the limit for a whole start.
func TestServersThatDoNotAnswer(t *testing.T) {
	r := newRig(t)
	r.o.greetTimeout, r.o.probe = 3*time.Second, time.Millisecond
	r.fake("mute", []string{"echo"}, "-do", "mute-on-discover,mute")
	refused(t, r.start().Proofs()[0], call.TimedOut, "server mute did not answer initialize within 3s")
}

// Servers that hang delay the start only until the timeout.
func TestServersThatHang(t *testing.T) {
	r := newRig(t)
	r.o.startTimeout = 5 * time.Second
	r.fake("silent", []string{"echo"}, "-do", "hang")
	r.fake("mute", []string{"echo"}, "-do", "mute-on-discover,mute")
	r.fake("good", []string{"echo"})
	m := r.start()
	for i, alias := range []string{"silent", "mute"} {
		refused(t, m.Proofs()[i], call.TimedOut, "server "+alias+" did not start within 5s")
		_, refusal := r.call(m, alias, "echo", `{}`)
		is(t, refusal, call.TimedOut, call.NoEffect, false)
	}
	r.works(m, "good")
}

func TestWhatIsNotHere(t *testing.T) {
	r := newRig(t)
	s := r.fake("gone", []string{"echo"})
	s.Command = "no-such-program-anywhere"
	s.Args = nil
	m := r.start()
	refused(t, m.Proofs()[0], call.ServerUnavailable, "no-such-program-anywhere")
	if !m.Proofs()[0].Lacking {
		t.Error("got Lacking false, want true")
	}
}

// A package that is unavailable may be available at the next start. A package that has changed stays refused.
func TestPackageRefusalsAreRetryable(t *testing.T) {
	for name, tt := range map[string]struct {
		found *pack.Package
		err   error
		code  call.Code
	}{
		"the download failed":    {err: &pack.Error{Code: pack.FetchFailed}, code: call.ServerUnavailable},
		"another error":          {err: io.ErrUnexpectedEOF, code: call.ServerUnavailable},
		"a variable is missing":  {found: &pack.Package{Needs: []string{"KEY"}}, code: call.ServerUnavailable},
		"another digest":         {err: &pack.Error{Code: pack.DigestMismatch}, code: call.ServerDrifted},
		"a modified package":     {err: &pack.Error{Code: pack.Tampered}, code: call.ServerDrifted},
		"two different versions": {err: &pack.Error{Code: pack.VersionConflict}, code: call.ServerDrifted},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{alias: "one", options: Options{}, spec: &Spec{}}
			s.spec.Package = func(context.Context, pack.Want, pack.Progress) (*pack.Package, error) { return tt.found, tt.err }
			r, _ := errors.AsType[*call.Refusal](s.preparePackage(t.Context(), &plan{}))
			is(t, r, tt.code, call.NoEffect, tt.code == call.ServerUnavailable)
		})
	}
}

// Servers with unusual but harmless behavior work.
func TestOddServersWork(t *testing.T) {
	tests := []struct {
		name, do string
		lives    string
		protocol string
		probe    time.Duration
	}{
		{"exits on the newer greeting", "exit-on-discover", "2", "2025-11-25", time.Minute},
		{"silent on the newer greeting", "silent-on-discover", "1", "2025-11-25", time.Millisecond},
		{"silent after the newer greeting", "mute-on-discover", "2", "2025-11-25", time.Millisecond},
		{"knows only the newer greeting, and starts too slowly for it", "modern-only,slow", "2", "2026-07-28", time.Millisecond},
		{"floods stderr", "flood", "1", "2025-11-25", time.Minute},
		{"prints to stdout", "noise", "1", "2025-11-25", time.Minute},
		{"answers twice", "answer-twice", "1", "2025-11-25", time.Minute},
		{"answers unknown requests", "answer-unknown-ids", "1", "2025-11-25", time.Minute},
		{"ignores the end of its input and signals", "stubborn", "1", "2025-11-25", time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.o.probe = tt.probe
			if strings.HasPrefix(tt.do, "mute") {
				r.o.greetTimeout = 12 * time.Second // the first start takes two thirds of this time
			}
			r.fake("odd", []string{"echo"}, "-do", tt.do)
			m := r.proven()
			r.works(m, "odd")
			r.works(m, "odd")
			if got := r.read("odd/lives"); got != tt.lives {
				t.Errorf("the server was started %s times, want %s", got, tt.lives)
			}
			if got := m.Proofs()[0].Protocol; got != tt.protocol {
				t.Errorf("the connection has protocol %s, want %s", got, tt.protocol)
			}
			if n := len(r.log()); n > 2*maxLogBytes {
				t.Errorf("the log has %d bytes, want at most %d", n, 2*maxLogBytes)
			}
		})
	}
}

// ambit greets a server in the protocol generation from the lock or from the last start. If the greeting
// fails, ambit tries the other generation.
func TestGenerationIsRemembered(t *testing.T) {
	tests := []struct {
		name, do, locked string
		discovers        string // how often the server received the newer greeting
		greeted          string // initialize if the server received the older greeting
		lives            string
	}{
		{"not locked", "", "", "1", "initialize", "1"},
		{"handshake", "", "2025-06-18", "", "initialize", "1"},
		{"no handshake", "modern", "2026-07-28", "1", "", "1"},
		{"a handshake at the last start, none now", "modern-only", "2025-11-25", "1", "initialize", "2"},
		{"no handshake at the last start, one now", "", "2026-07-28", "2", "initialize", "2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.fake("one", []string{"echo"}, "-do", tt.do)
			r.o.Lock = pack.NewLock()
			if tt.locked != "" {
				tool, err := pack.LockTool([]byte(definition("echo")))
				if err != nil {
					t.Fatal(err)
				}
				r.o.Lock.Agents[r.agent.ID] = &pack.LockedAgent{Servers: map[string]*pack.LockedServer{"one": {
					Package: pack.LockedPackage{Kind: pack.File, Digest: r.server("one").Digest}, Protocol: tt.locked,
					Tools: map[string]pack.LockedTool{"echo": tool},
				}}}
			}
			r.works(r.proven(), "one")
			for file, want := range map[string]string{"discovers": tt.discovers, "greeted": tt.greeted, "lives": tt.lives} {
				if got := r.read("one/" + file); got != want {
					t.Errorf("%s: got %q, want %q", file, got, want)
				}
			}
		})
	}
	t.Run("after a crash", func(t *testing.T) {
		r := newRig(t)
		r.fake("one", []string{"echo", "crash"})
		m := r.proven()
		r.call(m, "one", "crash", `{}`)
		r.works(m, "one")
		if got := r.read("one/discovers") + r.read("one/lives"); got != "12" {
			t.Errorf("got newer greetings and starts %q, want 1 and 2", got)
		}
	})
}

func TestCrashDuringACall(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo", "crash", "crash_write:write"})
	r.fake("two", []string{"echo"})
	m := r.proven()
	_, refusal := r.call(m, "one", "crash", `{}`)
	is(t, refusal, call.ServerUnavailable, call.NoEffect, true)
	r.works(m, "one") // the server has been restarted
	_, refusal = r.call(m, "one", "crash_write", `{}`)
	is(t, refusal, call.ServerUnavailable, call.EffectUnknown, false)
	r.works(m, "one")
	r.works(m, "two")
	if got := r.read("two/lives"); got != "1" {
		t.Errorf("the other server was started %s times", got)
	}
}

// asked is a context that signals when its Done channel is requested.
type asked struct {
	context.Context
	once sync.Once
	at   chan struct{}
}

func (a *asked) Done() <-chan struct{} {
	a.once.Do(func() { close(a.at) })
	return a.Context.Done()
}

// A call waits for a server that is being restarted.
func TestCallsWaitForARestart(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo", "crash"}, "-do", "wait-in-second-life")
	m := r.proven()
	r.call(m, "one", "crash", `{}`)
	r.until("the server is unavailable", func() bool { return !m.Proven() })
	ctx := &asked{Context: t.Context(), at: make(chan struct{})}
	done := make(chan *call.Refusal, 1)
	go func() {
		_, refusal := r.act(ctx, m, "one", "echo", &call.Call{})
		done <- refusal
	}()
	select {
	case <-ctx.at:
	case refusal := <-done:
		t.Fatalf("the call did not wait for the restart: %v", refusal)
	}
	r.write("one/go", "")
	if refusal := <-done; refusal != nil {
		t.Error(refusal)
	}

	// The wait ends with the call's context.
	if err := os.Remove(r.path("one/go")); err != nil {
		t.Fatal(err)
	}
	r.call(m, "one", "crash", `{}`)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, refusal := r.act(ended, m, "one", "echo", &call.Call{})
	is(t, refusal, call.TimedOut, call.NoEffect, false)
}

func TestCallsEnd(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"hang", "hang_write:write", "echo"})
	m := r.proven()
	tests := []struct {
		name, tool string
		deadline   bool
		effect     call.Effect
		retryable  bool
	}{
		{"a read that takes too long", "hang", true, call.NoEffect, true},
		{"a write that takes too long", "hang_write", true, call.EffectUnknown, false},
		{"a read that is cancelled", "hang", false, call.NoEffect, false},
		{"a write that is cancelled", "hang_write", false, call.EffectUnknown, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, file := range []string{"one/hanging", "one/cancelled"} {
				r.write(file, "")
			}
			ctx, cancel := context.WithCancel(t.Context())
			if tt.deadline {
				ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
			} else {
				go func() {
					r.until("the call hangs", func() bool { return r.read("one/hanging") != "" })
					cancel()
				}()
			}
			defer cancel()
			_, refusal := r.act(ctx, m, "one", tt.tool, &call.Call{})
			is(t, refusal, call.TimedOut, tt.effect, tt.retryable)
			r.until("the server was notified", func() bool { return r.read("one/cancelled") != "" && r.read("one/cancelled") == r.read("one/hanging") })
			r.works(m, "one")
		})
	}
}

// The manifest's timeout_ms bounds a call through the gateway.
func TestTimeoutOfTheManifest(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"hang:write"})
	m := r.proven()
	r.tool("one", "hang").Timeout = 500 * time.Millisecond
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	db := statetest.Open(t)
	g := gateway.New(r.agent, gateway.Options{Binding: m, Store: store.New(db, keys, nil)})
	_, err = g.Call(t.Context(), &call.Call{Tool: "hang"})
	refusal, _ := err.(*call.Refusal)
	is(t, refusal, call.TimedOut, call.EffectUnknown, false)
}

func TestProgressPasses(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"progress"})
	m := r.proven()
	var got []string
	c := &call.Call{Arguments: jsontext.Value(`{}`), OnNotify: func(method string, params jsontext.Value) {
		if i := bytes.Index(params, []byte(`"progress":`)); i >= 0 {
			got = append(got, method+" "+string(params[i:]))
		}
	}}
	if _, refusal := r.act(t.Context(), m, "one", "progress", c); refusal != nil {
		t.Fatal(refusal)
	}
	const note = `notifications/progress "progress":%d,"note":"step %d"}`
	if want := []string{fmt.Sprintf(note, 0, 0), fmt.Sprintf(note, 1, 1), fmt.Sprintf(note, 2, 2)}; !reflect.DeepEqual(got, want) {
		t.Errorf("got the progress %q, want %q", got, want)
	}
}

// If the start is canceled, a server that is still starting is refused and ended. A verified server
// keeps working.
func TestStartIsCancelled(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo"}, "-do", "hang")
	r.fake("two", []string{"echo"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		r.until("server one hangs", func() bool { return r.read("one/lives") != "" && strings.Contains(r.progress(), "two: ready") })
		cancel()
	}()
	m := Start(ctx, r.agent, r.o)
	defer m.Close()
	refused(t, m.Proofs()[0], call.ServerUnavailable, "canceled")
	r.works(m, "two")
}

func TestDigestOfAFile(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	real := "sha256:" + hex.EncodeToString(sum[:])
	other := "sha256:" + strings.Repeat("1", 64)
	tests := []struct {
		name, digest string
		want         PackageDigest
	}{
		{"pinned", real, PackageDigest{Declared: real, Actual: real, Status: Verified}},
		{"pinned to another digest", other, PackageDigest{Declared: other, Actual: real, Status: Mismatch}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			s := r.fake("one", []string{"echo"})
			s.Digest, s.Placeholder = tt.digest, false
			p := r.start().Proofs()[0]
			if p.Package != tt.want {
				t.Errorf("got the package %+v, want %+v", p.Package, tt.want)
			}
			if tt.want.Status == Mismatch {
				refused(t, p, call.ServerDrifted, real, other)
				if r.read("one/lives") != "" {
					t.Error("the server was started")
				}
			}
		})
	}
}
