package front

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

const manifestText = `{
  "schema_version": 1, "agent": "matrix://agent/x", "description": "Reads <files> & more.", "allowed_side_effects": ["read"],
  "servers": [
    {"alias": "fs", "transport": "stdio", "command": "x", "version": "1.0.0", "package_digest": "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a",
     "tools": [{"name": "read", "side_effect_class": "read"}, {"name": "write", "side_effect_class": "write"}, {"name": "list", "side_effect_class": "read"},
       {"name": "fail", "side_effect_class": "read"}, {"name": "ask", "side_effect_class": "read"}, {"name": "work", "side_effect_class": "read"},
       {"name": "wait", "side_effect_class": "read"}, {"name": "refuse", "side_effect_class": "read"}, {"name": "gone", "side_effect_class": "read"},
       {"name": "consult", "side_effect_class": "read"}, {"name": "broken", "side_effect_class": "read"}]},
    {"alias": "db", "transport": "stdio", "command": "y", "version": "2.0.0", "package_digest": "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a",
     "tools": [{"name": "list", "side_effect_class": "read"}]}
  ]
}`

// stage is a fake binding. The name of a tool determines what the tool does.
type stage struct {
	began   chan string   // receives the arguments when a call of the tool "wait" begins
	release chan struct{} // closed to end the calls of the tool "wait"
	gone    chan struct{} // receives a value when a call of the tool "wait" is cancelled; may be nil

	ask                   func(*call.Call) (jsontext.Value, error) // the function that the tool "consult" calls
	asks                  string                                   // the result of the tool "ask"
	mu                    sync.Mutex
	more, meta, continues string // fields of the last call of the tool "ask" or "broken"
}

func (s *stage) Act(ctx context.Context, t *agent.Tool, c *call.Call) (call.Result, error) {
	text := func(s string) (call.Result, error) { return call.Result{Raw: jsontext.Value(s)}, nil }
	if t.Name == "ask" || t.Name == "broken" {
		s.mu.Lock()
		s.more, s.meta, s.continues = string(c.More), string(c.Meta), c.Continues
		s.mu.Unlock()
	}
	switch t.Name {
	case "broken":
		return call.Result{Raw: jsontext.Value(`{"content":[],"isError":true}`), IsError: true, Failure: jsontext.Value(`{"code":-32021, "message":"no", "data":{"big":12345678901234567890}}`)}, nil
	case "consult":
		answer, err := s.ask(c)
		return call.Result{Raw: jsontext.Value(`{"content":[],"answer":` + string(answer) + `}`)}, err
	case "fail":
		return text(`{"content":[{"type":"text","text":"no luck"}],"isError":true}`)
	case "ask":
		if s.asks != "" {
			return text(s.asks)
		}
		return text(`{"resultType":"input_required","requestState":"x"}`)
	case "work":
		if c.OnNotify != nil {
			c.OnNotify("notifications/progress", jsontext.Value(`{"progressToken":"ours", "progress": 1.50,"x":"<b>"}`))
			c.OnNotify("notifications/message", jsontext.Value(`{"level":"info","data":"half"}`))
			c.OnNotify("notifications/progress", jsontext.Value(`{"progress":2}`))
		}
		return text(`{"content":[]}`)
	case "wait":
		s.began <- string(c.Arguments)
		select {
		case <-s.release:
			return text(`{"content":[],"was":` + string(c.Arguments) + `}`)
		case <-ctx.Done():
			if s.gone != nil {
				s.gone <- struct{}{}
			}
			return call.Result{}, call.Uncertain("act", call.TimedOut, "cancelled")
		}
	case "refuse":
		var args struct{ Code call.Code }
		if err := json.Unmarshal(c.Arguments, &args); err != nil {
			return call.Result{}, err
		}
		return call.Result{}, call.Refuse("act", args.Code, "because of %q", "<b>").Again()
	case "gone":
		return call.Result{}, io.ErrUnexpectedEOF
	}
	return text("{\n  \"content\": [ {\"type\":\"odd\",\"html\":\"<b>&\u2028\\u003c\"} ],\r\n  \"n\": 12345678901234567890.0, \"m\": 2, \"args\": " + string(c.Arguments) + "}")
}

// definitionOf returns a tool definition with unusual formatting and a duplicate member.
func definitionOf(t *agent.Tool) []byte {
	if t.Name == "gone" || t.Name == "consult" || t.Name == "broken" {
		return nil
	}
	return fmt.Appendf(nil, `{ "x-first": 1.0, "description":"<b>&\u003c %s","name" :"%s", "inputSchema":{"type":"object"},"x-first":2, "_meta":{"name":"inner"}}`, t.Name, t.Name)
}

// client is a test client of a session on stdio.
type client struct {
	t     *testing.T
	agent *Agent
	stage *stage
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
	stop  context.CancelFunc
}

// fakeGateway admits every call.
type fakeGateway struct {
	agent *agent.Agent
	*stage
}

func (d fakeGateway) Agent() *agent.Agent { return d.agent }

func (d fakeGateway) Listed(*call.Call) (*agent.Agent, []bool) { return d.agent, nil }
func (d fakeGateway) Offers(*call.Forward, string) bool        { return true }
func (d fakeGateway) Answer(context.Context, string, string, jsontext.Value) *call.Refusal {
	return nil
}
func (d fakeGateway) PolicyVersion(*call.Call) any { return nil }

func (d fakeGateway) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	if len(c.Arguments) == 0 {
		c.Arguments = jsontext.Value("{}")
	}
	for i := range d.agent.Tools {
		if d.agent.Tools[i].Name == c.Tool {
			return d.Act(ctx, &d.agent.Tools[i], c)
		}
	}
	return call.Result{}, call.Refuse("resolve", call.UnknownTool, "there is no %s", c.Tool)
}

func (d fakeGateway) Forward(context.Context, *call.Forward) (jsontext.Value, error) {
	return nil, call.Refuse("gate", call.PolicyDenied, "nothing is exposed")
}

func testManifest(t testing.TB) *agent.Agent {
	t.Helper()
	m, err := manifest.Parse("x.json", []byte(manifestText), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Agent()
}

// testAgent returns an agent whose gateway admits every call.
func testAgent(t testing.TB, s *stage) *Agent {
	var spent sync.Map
	spend := func(_ context.Context, id string, _ time.Time) (bool, error) {
		_, used := spent.LoadOrStore(id, true)
		return !used, nil
	}
	return &Agent{
		Gateway: fakeGateway{testManifest(t), s}, Definition: definitionOf, Version: "1.2.3", Spend: spend,
		Ready: func(context.Context) error { return nil }, Release: func(string) {},
		Level:        func(context.Context, *call.Client, string) {},
		Capabilities: func(string) jsontext.Value { return nil },
		Keys:         func() (*identity.Keys, error) { return nil, errors.New("no key is available") },
	}
}

// testKeys creates keys once for all tests.
var testKeys = sync.OnceValues(func() (*identity.Keys, error) {
	dir, err := os.MkdirTemp("", "front")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return identity.OpenKeys(filepath.Join(dir, "root"))
})

// gated returns a function that gives an agent a real gateway instead of the fake one.
func gated(t testing.TB) func(*Agent) {
	t.Helper()
	keys, err := testKeys()
	if err != nil {
		t.Fatal(err)
	}
	db := statetest.Open(t)
	b := store.New(db, keys, nil)
	return func(a *Agent) {
		a.Gateway = gateway.New(testManifest(t), gateway.Options{Binding: a.Gateway.(fakeGateway).stage, Store: b})
		a.Keys = testKeys
	}
}

func connect(t *testing.T, change ...func(*Agent)) *client {
	t.Helper()
	c := &client{t: t, stage: &stage{began: make(chan string), release: make(chan struct{})}, ended: make(chan error, 1)}
	a := testAgent(t, c.stage)
	for _, f := range change {
		f(a)
	}
	c.agent = a
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	c.in, c.out = toIn, bufio.NewReader(fromOut)
	go func() {
		err := ServeStdio(ctx, a, "me@local", in, out)
		c.ended <- err
		out.Close()
	}()
	return c
}

func (c *client) say(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(c.in, line+"\n"); err != nil {
			c.t.Errorf("the front does not read its input: %v", err)
		}
	}
}

// call starts a call of the tool "wait" and returns when the tool has begun.
func (c *client) call(id int) {
	c.t.Helper()
	c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait","arguments":{"id":%d}}}`, id, id))
	<-c.stage.began
}

func (c *client) hear() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("the output ended after %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (c *client) wants(want string) {
	c.t.Helper()
	if got := c.hear(); got != want {
		c.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// pinged sends a ping and waits for the answer. After that, all earlier messages have been read.
func (c *client) pinged() {
	c.t.Helper()
	c.say(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	c.wants(`{"jsonrpc":"2.0","id":"ping","result":{}}`)
}

var update = flag.Bool("update", false, "rewrite the answers in the transcripts")

// TestTranscripts sends the lines after ">" and compares the answers with the lines after "<", byte
// for byte.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			played := play(t, string(script))
			if *update {
				if err := os.WriteFile(file, []byte(played), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, got := strings.Split(string(script), "\n"), strings.Split(played, "\n")
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					t.Fatalf("line %d is\n%s\nwant\n%s", i+1, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
				}
			}
		})
	}
}

func mustParse(t testing.TB, text string) mcpwire.Message {
	t.Helper()
	m, problem := parse([]byte(text))
	if problem != nil {
		t.Fatal(problem.Message)
	}
	return m
}

var sealed = regexp.MustCompile(`"requestState":"[\w-]{100,}"`)

// play sends the lines of a script and records the answers. After each line, it waits for the
// answer. If the line gets no answer, it sends a ping and waits for that answer.
func play(t *testing.T, script string) string {
	c := connect(t, gated(t))
	var played strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "< ") {
			continue
		}
		played.WriteString(line)
		if !strings.HasPrefix(line, ">") {
			continue
		}
		said := strings.TrimSuffix(line[1:], "\n")
		c.say(said)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		last := ""
		if json.Unmarshal([]byte(said), &m) == nil && m.ID != nil && m.Method != "" {
			last = `"id":` + string(m.ID) + ","
		}
		const pong = `{"jsonrpc":"2.0","id":"pong","result":{}}`
		if last == "" || strings.Contains(said, "notifications/") {
			c.say(`{"jsonrpc":"2.0","id":"pong","method":"ping"}`)
			last = pong
		}
		for {
			answer := c.hear()
			if !json.Valid([]byte(answer)) {
				t.Errorf("the answer is not valid JSON: %s", answer)
			}
			if answer == pong {
				break
			}
			answer = sealed.ReplaceAllString(answer, `"requestState":"(sealed)"`)
			played.WriteString("< " + answer + "\n")
			if strings.Contains(answer, last) || strings.Contains(answer, `"id":null`) && last != pong {
				break
			}
		}
	}
	c.in.Close()
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
	if rest, _ := io.ReadAll(c.out); len(rest) > 0 {
		t.Errorf("unexpected output at the end: %s", rest)
	}
	return played.String()
}

func TestEveryRefusalIsInBand(t *testing.T) {
	c := connect(t, gated(t))
	for i, m := range call.Meanings {
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"refuse","arguments":{"code":%q}}}`, i, m.Code))
		var answer struct {
			ID     int
			Result struct {
				IsError           bool
				Content           []struct{ Type, Text string }
				StructuredContent struct {
					Error struct {
						Code          call.Code
						Message, Hint string
						Retryable     bool
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(c.hear()), &answer); err != nil {
			t.Fatal(err)
		}
		e := answer.Result.StructuredContent.Error
		if answer.ID != i || !answer.Result.IsError || e.Code != m.Code || e.Message != `because of "<b>"` || e.Hint != m.Command.After(m.Fix, "") || !e.Retryable {
			t.Errorf("%s: %+v", m.Code, answer)
		}
		if len(answer.Result.Content) != 1 || !strings.HasPrefix(answer.Result.Content[0].Text, string(m.Code)+": because of") {
			t.Errorf("%s: the model reads %+v", m.Code, answer.Result.Content)
		}
	}
	// An error of any other type is sent like a refusal.
	c.say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"gone"}}`)
	if got := c.hear(); !strings.Contains(got, `"isError":true`) || !strings.Contains(got, `"code":"server_unavailable"`) {
		t.Error(got)
	}
}

func TestSkillNarrows(t *testing.T) {
	c := connect(t, gated(t), func(a *Agent) {
		tools, err := skill.ParseTools("§TOOLS\nmatrix://tool/mcp/fs/work@1.0.0\n")
		if err != nil {
			t.Fatal(err)
		}
		a.Skill = tools
	})
	c.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`)
	if got := c.hear(); !strings.Contains(got, `"code":"not_in_skill_allowlist"`) {
		t.Error(got)
	}
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work"}}`)
	c.wants(`{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)
}

func TestCallsRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		for i := range maxCalls {
			c.call(i)
		}
		c.say(`{"jsonrpc":"2.0","id":"more","method":"tools/call","params":{"name":"wait"}}`)
		c.wants(`{"jsonrpc":"2.0","id":"more","error":{"code":-32603,"message":"the client has too many open requests"}}`)
		c.say(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"read"}}`)
		c.wants(`{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"a request with this id is still running"}}`)
		close(c.stage.release)
		var got []string
		for range maxCalls {
			got = append(got, c.hear())
		}
		for i := range maxCalls {
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[],"was":{"id":%d}}}`, i, i); !slices.Contains(got, want) {
				t.Errorf("no answer is %s", want)
			}
		}
		c.pinged() // the client can send requests again
		c.in.Close()
		<-c.ended
	})
}

func TestCancelledCallIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		c.call(1)
		c.call(2)
		c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"bored"}}`)
		synctest.Wait()
		c.pinged()
		close(c.stage.release)
		c.wants(`{"jsonrpc":"2.0","id":2,"result":{"content":[],"was":{"id":2}}}`)
		c.call(1) // the id can be used again
		c.wants(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"was":{"id":1}}}`)
		c.in.Close()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
}

// A cancellation takes effect even if it immediately follows its call.
func TestCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		go func() { <-c.stage.began }()
		c.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		c.pinged()
		c.in.Close()
		start := time.Now()
		<-c.ended
		if waited := time.Since(start); waited > 0 {
			t.Errorf("the call continued for %v after the end of the input, want 0s", waited)
		}
	})
}

func TestInputEnds(t *testing.T) {
	t.Run("during a call that then ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := connect(t)
			c.call(1)
			c.in.Close()
			synctest.Wait()
			close(c.stage.release)
			c.wants(`{"jsonrpc":"2.0","id":1,"result":{"content":[],"was":{"id":1}}}`)
			if err := <-c.ended; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("during a call that does not end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := connect(t)
			c.call(1)
			start := time.Now()
			c.in.Close()
			if err := <-c.ended; err != nil {
				t.Error(err)
			}
			if waited := time.Since(start); waited != lastAnswers {
				t.Errorf("the front waited for %v, want %v", waited, lastAnswers)
			}
			if b, _ := io.ReadAll(c.out); len(b) > 0 {
				t.Errorf("unexpected output: %s", b)
			}
		})
	})
	t.Run("in the middle of a line", func(t *testing.T) {
		c := connect(t)
		if _, err := io.WriteString(c.in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
			t.Fatal(err)
		}
		c.in.Close()
		c.wants(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("with an error", func(t *testing.T) {
		c := connect(t)
		c.in.CloseWithError(io.ErrUnexpectedEOF)
		if err := <-c.ended; err != io.ErrUnexpectedEOF {
			t.Errorf("ServeStdio returned %v, want %v", err, io.ErrUnexpectedEOF)
		}
	})
}

// A session ends when its context ends, even if its input is still open.
func TestContextEnds(t *testing.T) {
	c := connect(t)
	c.call(1)
	c.stop()
	if err := <-c.ended; err != context.Canceled {
		t.Errorf("ServeStdio returned %v, want %v", err, context.Canceled)
	}
	c.in.Close()
}

func TestOversizedLine(t *testing.T) {
	c := connect(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		// The write may fail, because the front need not read the whole line.
		_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`+strings.Repeat("x", maxMessage)+`"}}`+"\n")
	})
	c.wants(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is larger than 32 MiB"}}`)
	if err := <-c.ended; err != errTooLong {
		t.Errorf("ServeStdio returned %v, want %v", err, errTooLong)
	}
	c.in.Close()
	wg.Wait()
}

func TestSet(t *testing.T) {
	tests := []struct{ name, object, member, value, want string }{
		{"replaced", `{"a": 1, "name" : "x" ,"b":2}`, "name", `"y"`, `{"a": 1, "name" : "y" ,"b":2}`},
		{"an inner member stays", `{"a":{"name":"x"},"name":"x"}`, "name", `"y"`, `{"a":{"name":"x"},"name":"y"}`},
		{"spelled with escapes", `{"n\u0061me":"x"}`, "name", `"y"`, `{"n\u0061me":"y"}`},
		{"inserted", ` { "a":1}`, "name", `"y"`, ` {"name":"y", "a":1}`},
		{"inserted into an empty object", `{ }`, "name", `"y"`, `{"name":"y" }`},
		{"no object", `["name"]`, "name", `"y"`, `["name"]`},
		{"nothing", ``, "name", `"y"`, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(set([]byte(tt.object), tt.member, jsontext.Value(tt.value))); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
