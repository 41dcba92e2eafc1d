package flow

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
)

// suite is a file of traces: calls with the results that a model would see. testdata/README.md describes the format.
type suite struct {
	Tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		SideEffect  string          `json:"side_effect"`
		Destructive bool            `json:"destructive"`
	} `json:"tools"`
	UserTasks []userTask `json:"user_tasks"`
	Attacks   []attack   `json:"attacks"`
}

type userTask struct {
	ID    string `json:"id"`
	Steps []step `json:"steps"`
}

type attack struct {
	User, Injection, Goal string
	Steps                 []step
}

type step struct {
	Tool       string          `json:"tool"`
	Args       json.RawMessage `json:"args"`
	Result     any             `json:"result"`
	Structured json.RawMessage `json:"structured"`
	Meta       json.RawMessage `json:"meta"`
	Attacker   bool            `json:"attacker"`
	Session    string          `json:"session"`
	Minutes    int             `json:"minutes"`
}

// readSuite reads a file of traces and checks its format.
func readSuite(t *testing.T, path string) *suite {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var s suite
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := s.check(); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return &s
}

// check reports the first problem with the format of a file.
func (s *suite) check() error {
	effects := map[string]bool{}
	for _, d := range s.Tools {
		class := agent.SideEffect(d.SideEffect)
		if class.Rank() >= len(agent.SideEffects) {
			return fmt.Errorf("the tool %s has the unknown side_effect %q", d.Name, d.SideEffect)
		}
		effects[d.Name] = class != agent.Read
	}
	steps := func(trace string, list []step) (attacker int, err error) {
		for i, st := range list {
			if _, ok := effects[st.Tool]; !ok {
				return 0, fmt.Errorf("%s: step %d calls the tool %q, which tools does not contain", trace, i+1, st.Tool)
			}
			if st.Args = bytes.TrimSpace(st.Args); len(st.Args) == 0 || st.Args[0] != '{' {
				return 0, fmt.Errorf("%s: the args of step %d are not an object", trace, i+1)
			}
			if st.Attacker {
				attacker++
			}
		}
		return attacker, nil
	}
	for _, u := range s.UserTasks {
		n, err := steps("task "+u.ID, u.Steps)
		if err != nil {
			return err
		}
		if n > 0 || u.ID == "" {
			return fmt.Errorf("the task %q has no id or a call of an attacker", u.ID)
		}
	}
	for _, a := range s.Attacks {
		trace := "attack " + a.User + ", " + a.Injection
		n, err := steps(trace, a.Steps)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%s has no call of the attacker", trace)
		}
	}
	return nil
}

// The example in testdata/README.md has the format that the page describes.
func TestTraceFormat(t *testing.T) {
	page, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```json\n")
	example, _, _ = strings.Cut(example, "```")
	path := filepath.Join(t.TempDir(), "example.json")
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	r := measure(readSuite(t, path), change{}, everything, t.Logf)
	if r.tasks != 1 || r.questions != 0 || r.attacks != 1 || r.all != 1 {
		t.Errorf("the example gives %v", r)
	}
	for _, wrong := range []*suite{
		{UserTasks: []userTask{{ID: "x", Steps: []step{{Tool: "unknown", Args: []byte("{}")}}}}},
		{Attacks: []attack{{}}},
	} {
		if wrong.check() == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

// traceFiles returns the files of traces at a path.
func traceFiles(t *testing.T, path string) (files []string) {
	t.Helper()
	if info, err := os.Stat(path); err != nil {
		t.Fatal(err)
	} else if !info.IsDir() {
		return []string{path}
	}
	for _, pattern := range []string{"*.json", "*.json.gz"} {
		found, _ := filepath.Glob(filepath.Join(path, pattern))
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatalf("%s contains no file of traces", path)
	}
	return files
}

// change is applied to a suite before the suite is measured.
type change struct {
	neutral bool // replaces the names of tools with neutral names
	strict  bool
}

func (s *suite) tools(c change) map[string]*Tool {
	m := map[string]*Tool{}
	for i, d := range s.Tools {
		name := d.Name
		if c.neutral {
			name = fmt.Sprintf("op%d", i+1)
		}
		m[d.Name] = NewTool(Spec{
			Name: name, Description: d.Description, Schema: string(d.Parameters),
			Effect: d.SideEffect != "read", Network: agent.SideEffect(d.SideEffect).Rank() > agent.Write.Rank(),
			Destructive: d.Destructive,
		})
	}
	return m
}

func resultOf(text any) []byte { return (&step{Result: text}).result() }

// result returns the result of a call in the form of MCP.
func (st *step) result() []byte {
	s, ok := st.Result.(string)
	if !ok {
		b, _ := json.Marshal(st.Result)
		s = string(b)
	}
	r := map[string]any{"content": []any{map[string]any{"type": "text", "text": s}}}
	if st.Structured != nil {
		r["structuredContent"] = st.Structured
	}
	if st.Meta != nil {
		r["_meta"] = st.Meta
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return b
}

// played counts the calls of a trace.
type played struct {
	questions, effects int // all questions, and all calls with an effect
	attacker, stopped  int // calls with an effect that the attacker wants, and those among them that a person sees
}

// run plays a trace.
func run(tools map[string]*Tool, steps []step, c change, say func(string, ...any)) (p played) {
	now := time.Unix(1_700_000_000, 0)
	m := NewMemory(DefaultWindow)
	for i, st := range steps {
		now = now.Add(time.Duration(st.Minutes) * time.Minute)
		s := m.Session(st.Session, now)
		t := tools[st.Tool]
		asked := false
		if t.Decides() {
			v := s.Decide(t, st.Args, now, c.strict)
			if asked = len(v.Findings) > 0; asked {
				p.questions++
				say("  asked %s: %+v", st.Tool, v.Findings)
			}
		}
		if t.Effect {
			p.effects++
		}
		if st.Attacker && (t.Effect || asked) {
			p.attacker++
			if asked {
				p.stopped++
				continue // a person refuses the call
			}
			say("  MISSED %s %s", st.Tool, st.Args)
		}
		if asked {
			s.Approve(t, st.Args)
		}
		s.Made(t, st.Args, now)
		s.Observe(t, st.Args, st.result(), Source{Call: fmt.Sprint(i), Tool: st.Tool, Time: now})
	}
	return p
}

// half selects one half of the traces.
func half(first bool) func(string) bool {
	return func(id string) bool {
		var seed [32]byte
		copy(seed[:], "flow"+id)
		return rand.New(rand.NewChaCha8(seed)).IntN(2) == 0 == first
	}
}

// score sums up the traces of a file.
type score struct {
	attacks, some, all                                 int
	tasks, quiet, withEffects, quietEffects, questions int
	effects                                            int
}

func (s score) String() string {
	pct := func(a, b int) string { return fmt.Sprintf("%d/%d (%.1f %%)", a, b, 100*float64(a)/float64(max(b, 1))) }
	return fmt.Sprintf("attacks with an effect stopped %s, with all effects stopped %s; tasks without a question %s, "+
		"of those with effects %s; %.2f questions a task, for each effect %s",
		pct(s.some, s.attacks), pct(s.all, s.attacks), pct(s.quiet, s.tasks), pct(s.quietEffects, s.withEffects),
		float64(s.questions)/float64(max(s.tasks, 1)), pct(s.questions, s.effects))
}

// measure plays every trace of a suite for which the filter returns true.
func measure(s *suite, c change, keep func(id string) bool, say func(string, ...any)) (r score) {
	tools := s.tools(c)
	for _, a := range s.Attacks {
		if !keep(a.User + a.Injection) {
			continue
		}
		var lines []string
		p := run(tools, a.Steps, c, func(f string, x ...any) { lines = append(lines, fmt.Sprintf(f, x...)) })
		if p.attacker == 0 {
			continue
		}
		r.attacks++
		if p.stopped > 0 {
			r.some++
		}
		if p.stopped == p.attacker {
			r.all++
		} else {
			say("attack %s %s: %s\n%s", a.User, a.Injection, a.Goal, strings.Join(lines, "\n"))
		}
	}
	for _, u := range s.UserTasks {
		if !keep(u.ID) {
			continue
		}
		var lines []string
		p := run(tools, u.Steps, c, func(f string, x ...any) { lines = append(lines, fmt.Sprintf(f, x...)) })
		r.tasks++
		r.questions += p.questions
		r.effects += p.effects
		if p.effects > 0 {
			r.withEffects++
		}
		if p.questions > 0 {
			say("task %s\n%s", u.ID, strings.Join(lines, "\n"))
			continue
		}
		r.quiet++
		if p.effects > 0 {
			r.quietEffects++
		}
	}
	return r
}

func everything(string) bool { return true }

// TestTraces plays the traces of a folder or file and prints the figures of each file.
func TestTraces(t *testing.T) {
	path := os.Getenv("FLOW_TRACES")
	if path == "" {
		path = "testdata"
	}
	for _, file := range traceFiles(t, path) {
		s := readSuite(t, file)
		for _, c := range []change{{}, {neutral: true}, {strict: true}} {
			name := fmt.Sprintf("%s, neutral names %v, strict %v: ", filepath.Base(file), c.neutral, c.strict)
			r := measure(s, c, everything, func(format string, a ...any) { t.Logf(name+format, a...) })
			t.Logf("%s%v", name, r)
		}
	}
}
