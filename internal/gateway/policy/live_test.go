package policy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/store/home"
)

const (
	forbidAll = `forbid (principal, action, resource);`
	noWrites  = `@id("no-writes") forbid (principal, action, resource) when { resource.side_effect == "write" };`
)

// bench contains a policy in a temporary folder. The field said collects its log messages.
type bench struct {
	t    *testing.T
	dir  string
	live *Live
	said []string
}

func newBench(t *testing.T, text string) *bench {
	b := &bench{t: t, dir: t.TempDir()}
	if text != "" {
		b.move(text)
	}
	b.open()
	return b
}

func (b *bench) open() {
	b.live = Open(Options{File: b.file(), Config: filepath.Join(b.dir, "config.toml"), Log: func(m string) { b.said = append(b.said, m) }})
}

func (b *bench) file() string { return filepath.Join(b.dir, "policy.cedar") }

// move replaces the policy file atomically.
func (b *bench) move(text string) {
	b.t.Helper()
	if err := home.Replace(b.file(), 0o600, []byte(text)); err != nil {
		b.t.Fatal(err)
	}
}

// write changes the file in place, with a modification time in the past.
func (b *bench) write(text string, ago time.Duration) {
	b.t.Helper()
	at := time.Now().Add(-ago)
	if err := os.WriteFile(b.file(), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chtimes(b.file(), at, at); err != nil {
		b.t.Fatal(err)
	}
}

// ask returns the decision on a call: yes, or the code of the first denial.
func (b *bench) ask(dialect agent.Dialect, side agent.SideEffect) string {
	return first(b.live.Judge(context.Background(), &agent.Agent{Dialect: dialect}, "a", &agent.Tool{Name: "t", SideEffect: side, Binding: agent.OnServer{Alias: "s"}}, &call.Call{}))
}

func first(reasons []call.Reason) string {
	for _, r := range reasons {
		if !r.Allowed {
			return string(r.Code)
		}
	}
	return "yes"
}

func (b *bench) want(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestNoPolicy(t *testing.T) {
	b := newBench(t, "")
	b.want("a GPARS agent", b.ask(agent.GPARS, agent.Read), "scope_not_granted")
	for _, d := range []agent.Dialect{agent.Matrix, agent.Covenant, agent.FindAgent} {
		b.want(string(d), b.ask(d, agent.Shell), "yes")
	}
	if r := b.live.Judge(context.Background(), &agent.Agent{Dialect: agent.Matrix}, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{}}, &call.Call{}); r != nil {
		t.Errorf("without a policy, Judge returned the reasons %v", r)
	}
}

// Names in a hint are quoted for the shell, because people copy the hint into a shell.
func TestHint(t *testing.T) {
	b := newBench(t, "// nothing")
	if err := home.Replace(filepath.Join(b.dir, "config.toml"), 0o600, []byte("[scopes]\ns = {read = [\"t\"]}\n\"x;ls\" = {read = [\"t\"]}\n")); err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]string{"s": "grant the scope: ambit grant a --server s --scope read", "x;ls": "grant the scope: ambit grant a --server 'x;ls' --scope read", "u": `map a scope to the tool in config.toml: [scopes."u"] SCOPE = ["t"]; then grant that scope`} {
		asking := &agent.Agent{Dialect: agent.GPARS, Requirements: []agent.Requirement{{Server: server, Scopes: []string{"read"}}}}
		reasons := b.live.Judge(context.Background(), asking, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: server}}, &call.Call{})
		if last := reasons[len(reasons)-1]; last.Allowed || last.Hint != want {
			t.Errorf("%s: the last reason is %+v", server, last)
		}
	}
}

// A grant gives an agent no more than the scopes that its manifest requests. Forbid rules still see every scope.
func TestGrantsStayWithinTheRequest(t *testing.T) {
	grant := func(scope string) string { return Grant{Agent: "a", Server: "s", Scope: scope, By: "me"}.Rule() }
	const read, write, both = "look", "change", "stat"
	for name, c := range map[string]struct {
		rules, tool string
		asked       []string
		want        string
	}{
		"a requested scope":                   {grant("read"), read, []string{"read"}, "yes"},
		"a scope that is not requested":       {grant("write"), write, []string{"read"}, "scope_not_granted"},
		"both are granted, one is requested":  {grant("read") + grant("write"), write, []string{"read"}, "scope_not_granted"},
		"both are requested":                  {grant("read") + grant("write"), write, []string{"read", "write"}, "yes"},
		"nothing is requested":                {grant("read"), read, nil, "scope_not_granted"},
		"the other scope of a tool":           {grant("write"), both, []string{"read"}, "scope_not_granted"},
		"one of the tool's scopes":            {grant("read"), both, []string{"read"}, "yes"},
		"a scope as a group":                  {`permit (principal, action, resource in Scope::"s/write");`, write, []string{"read"}, "scope_not_granted"},
		"a rule without scopes":               {`permit (principal == Agent::"a", action, resource);`, write, []string{"read"}, "yes"},
		"a rule that excludes a scope":        {`permit (principal, action, resource) unless { resource.scopes.contains("write") };`, write, []string{"read"}, "scope_not_granted"},
		"a scope that is forbidden":           {grant("read") + `forbid (principal, action, resource) when { resource.scopes.contains("write") };`, both, []string{"read"}, "policy_denied"},
		"tools outside a scope are forbidden": {grant("read") + `forbid (principal, action, resource) unless { resource.scopes.contains("write") };`, both, []string{"read"}, "yes"},
	} {
		b := newBench(t, c.rules)
		config := "[scopes.s]\nread = [\"look\", \"stat\"]\nwrite = [\"change\", \"stat\"]\n"
		if err := home.Replace(filepath.Join(b.dir, "config.toml"), 0o600, []byte(config)); err != nil {
			t.Fatal(err)
		}
		b.open()
		a := &agent.Agent{Dialect: agent.GPARS, Requirements: []agent.Requirement{{Server: "s", Scopes: c.asked}, {Server: "other", Scopes: []string{"write"}}}}
		tool := &agent.Tool{Name: c.tool, Binding: agent.OnServer{Alias: "s"}}
		b.want(name, first(b.live.Judge(t.Context(), a, "a", tool, &call.Call{Principal: "me@local"})), c.want)
		foreseen := Never
		if c.want == "yes" {
			foreseen = Always
		}
		if got := b.live.Foresee(a, "a", tool, &call.Call{Principal: "me@local"}); got != foreseen {
			t.Errorf("%s: foreseen %d, want %d", name, got, foreseen)
		}
	}
}

// A grant with an id does not apply to another agent that takes the name, and the refusal reports that.
func TestGrantBelongsToOneAgent(t *testing.T) {
	b := newBench(t, Grant{Agent: "a", ID: "org:one", Server: "s", Scope: "read", By: "me"}.Rule())
	if err := home.Replace(filepath.Join(b.dir, "config.toml"), 0o600, []byte("[scopes.s]\nread = [\"t\"]\n")); err != nil {
		t.Fatal(err)
	}
	b.open()
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	for id, want := range map[string]string{"org:one": "yes", "org:two": "scope_not_granted", "": "scope_not_granted"} {
		a := &agent.Agent{Dialect: agent.GPARS, ID: id, Digest: id, Requirements: []agent.Requirement{{Server: "s", Scopes: []string{"read"}}}}
		reasons := b.live.Judge(t.Context(), a, "a", tool, &call.Call{})
		b.want(id, first(reasons), want)
		if last := reasons[len(reasons)-1]; want != "yes" && !strings.Contains(last.Detail, `the scope read was granted to another agent with the same name, "org:one"`) {
			t.Errorf("%s: got the reason %q", id, last.Detail)
		}
	}
}

// The refusal names the grant that has no effect, and the hint describes the first change to make.
func TestUnrequestedGrantIsExplained(t *testing.T) {
	b := newBench(t, Grant{Agent: "a", Server: "s", Scope: "write", By: "me"}.Rule())
	if err := home.Replace(filepath.Join(b.dir, "config.toml"), 0o600, []byte("[scopes.s]\nwrite = [\"t\"]\n")); err != nil {
		t.Fatal(err)
	}
	b.open()
	a := &agent.Agent{Dialect: agent.GPARS, Requirements: []agent.Requirement{{Server: "s", Scopes: []string{"read"}}}}
	reasons := b.live.Judge(t.Context(), a, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}, &call.Call{})
	last := reasons[len(reasons)-1]
	if want := "; grant (line 1) has no effect, because the manifest does not request its scope"; !strings.HasSuffix(last.Detail, want) {
		t.Errorf("got %q, want the end %q", last.Detail, want)
	}
	if want := `add "write" to the permission_scopes of "s" in the manifest, then grant the scope: ambit grant a --server s --scope write`; last.Hint != want {
		t.Errorf("got the hint %q, want %q", last.Hint, want)
	}
}

// If the gate has no policy at all, every call by a GPARS agent is denied.
func TestGateWithoutPolicy(t *testing.T) {
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	for d, want := range map[agent.Dialect]string{agent.GPARS: "scope_not_granted", agent.Matrix: "yes"} {
		if got := first(gate.Decide(context.Background(), &agent.Agent{Dialect: d}, "a", tool, &call.Call{}, gate.Rules{}).Reasons); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestFirstPermitKeepsOtherAgentsAllowed(t *testing.T) {
	b := newBench(t, `permit (principal == Agent::"other", action, resource);`)
	b.want("a Matrix agent", b.ask(agent.Matrix, agent.Write), "yes")
	b.want("a GPARS agent", b.ask(agent.GPARS, agent.Read), "scope_not_granted")
}

// If the policy is unusable at the start, every call is refused until the file is fixed.
func TestUnusableAtStart(t *testing.T) {
	for name, spoil := range map[string]func(b *bench){
		"syntax":    func(b *bench) { b.move("permit (principal") },
		"a folder":  func(b *bench) { _ = os.Remove(b.file()); _ = os.Mkdir(b.file(), 0o700) },
		"too large": func(b *bench) { b.move("//" + strings.Repeat("x", maxFile)) },
		"scopes": func(b *bench) {
			_ = os.WriteFile(filepath.Join(b.dir, "config.toml"), []byte("[scopes]\nx = 1\n"), 0o600)
		},
		"config.toml": func(b *bench) { _ = os.WriteFile(filepath.Join(b.dir, "config.toml"), []byte("[scopes"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, noWrites)
			spoil(b)
			b.open()
			for _, d := range agent.Dialects {
				b.want(string(d), b.ask(d, agent.Read), "policy_denied")
			}
			if b.live.Problem() == "" || len(b.said) != 1 || !strings.Contains(b.said[0], "CANNOT BE USED") {
				t.Errorf("the problem is %q, the log messages are %q", b.live.Problem(), b.said)
			}
			_ = os.Remove(filepath.Join(b.dir, "config.toml"))
			if info, err := os.Stat(b.file()); err == nil && info.IsDir() {
				_ = os.Remove(b.file())
			}
			b.move(noWrites)
			b.want("fixed", b.ask(agent.Matrix, agent.Read), "yes")
			b.want("fixed", b.ask(agent.Matrix, agent.Write), "policy_denied")
		})
	}
}

// If the file becomes unusable, the last good rules stay in force until the file is fixed.
func TestKeepsTheLastGood(t *testing.T) {
	b := newBench(t, noWrites)
	b.want("a write", b.ask(agent.Matrix, agent.Write), "policy_denied")
	b.move("forbid (principal, action, resource) when { ")
	b.want("a write under a broken file", b.ask(agent.Matrix, agent.Write), "policy_denied")
	b.want("a read under a broken file", b.ask(agent.Matrix, agent.Read), "yes")
	if s := b.live.load(); s.problem == nil || s.rules.Len() != 1 {
		t.Errorf("the policy in force is %+v", s)
	}
	if len(b.said) != 1 || !strings.Contains(b.said[0], "last good rules stay in force") {
		t.Errorf("the log messages are %q", b.said)
	}
	// The reasons report the problem.
	reasons := b.live.Judge(context.Background(), &agent.Agent{Dialect: agent.Matrix}, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}, &call.Call{})
	if !strings.Contains(fmt.Sprint(reasons), "last good rules are in force") {
		t.Errorf("got the reasons %v", reasons)
	}
	b.move(forbidAll)
	b.want("after the fix", b.ask(agent.Matrix, agent.Read), "policy_denied")
	if s := b.live.Problem(); s != "" {
		t.Errorf("got the problem %+v", s)
	}
}

func TestChangesCountAtOnce(t *testing.T) {
	b := newBench(t, "")
	for i := range 20 {
		rules, want := forbidAll, "policy_denied"
		if i%2 == 1 {
			rules, want = noWrites, "yes"
		}
		b.move(rules)
		b.want(fmt.Sprint("change ", i), b.ask(agent.Matrix, agent.Read), want)
	}
}

// While a changed file is being read, no call is judged by the old rules. Calls wait, but only until their
// context ends.
func TestRevokedWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, dir: t.TempDir()}
		b.move(noWrites)
		var reading, read chan struct{}
		const glance = 2 * time.Millisecond
		b.live = Open(Options{File: b.file(), Glance: glance, Catalogue: func() (Catalogue, error) {
			if reading != nil {
				close(reading)
				<-read
			}
			return catalogue{}, nil
		}})
		b.want("a read", b.ask(agent.Matrix, agent.Read), "yes")
		reading, read = make(chan struct{}), make(chan struct{})
		b.move(forbidAll)
		time.Sleep(glance)
		answers := make(chan string, 2)
		ask := func() { answers <- b.ask(agent.Matrix, agent.Read) }
		go ask()
		<-reading
		go ask()
		synctest.Wait()
		if len(answers) > 0 {
			t.Error("a call was judged before the rules were read")
		}
		ended, end := context.WithCancel(t.Context())
		end()
		late := b.live.Judge(ended, &agent.Agent{Dialect: agent.Matrix}, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}, &call.Call{})
		b.want("a call that ends while it waits", first(late), "policy_denied")
		close(read)
		for range 2 {
			b.want("a read that is forbidden now", <-answers, "policy_denied")
		}
	})
}

// If a file is being written in place, it is read only after the writing has paused. Half a file could be valid.
func TestHalfAFile(t *testing.T) {
	b := newBench(t, noWrites)
	b.write("// soon there are rules here again", 0)
	b.want("while the file is written", b.ask(agent.Matrix, agent.Write), "policy_denied")
	b.write("// there are no rules any more", 2*writePause)
	b.want("after the file was written", b.ask(agent.Matrix, agent.Write), "yes")
	b.write(noWrites+"// there.", 2*writePause)
	b.want("after the second write", b.ask(agent.Matrix, agent.Write), "policy_denied")
}

// A second write shortly after the first write is noticed. This is true even if the file has the same size and
// modification time.
func TestSameTimesSameSize(t *testing.T) {
	b := newBench(t, "")
	at := time.Now()
	put := func(text string) {
		if err := os.WriteFile(b.file(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(b.file(), at, at); err != nil {
			t.Fatal(err)
		}
	}
	put(strings.Replace(noWrites, `"write"`, `"shell"`, 1))
	b.want("a write", b.ask(agent.Matrix, agent.Write), "yes")
	put(noWrites)
	b.want("a write, forbidden in the same instant", b.ask(agent.Matrix, agent.Write), "policy_denied")
}

// If the file is deleted, its permits end, and its forbids stay in force.
func TestVanished(t *testing.T) {
	b := newBench(t, noWrites+`permit (principal, action, resource);`)
	b.want("a read", b.ask(agent.GPARS, agent.Read), "yes")
	if err := os.Remove(b.file()); err != nil {
		t.Fatal(err)
	}
	b.want("a read that was permitted", b.ask(agent.GPARS, agent.Read), "scope_not_granted")
	b.want("a write that was forbidden", b.ask(agent.Matrix, agent.Write), "policy_denied")
	b.want("a read that needs no permit", b.ask(agent.Matrix, agent.Read), "yes")
	if s := b.live.Problem(); !strings.Contains(s, "is missing") {
		t.Errorf("got the problem %+v", s)
	}
	b.move("// none")
	b.want("a new file", b.ask(agent.Matrix, agent.Write), "yes")
}

// A reload is atomic: a reader sees either the complete old policy or the complete new policy.
func TestReloadIsOneStep(t *testing.T) {
	both := `forbid (principal, action, resource) when { resource.side_effect == "write" };
forbid (principal, action, resource) when { resource.side_effect == "read" };`
	b := newBench(t, both)
	b.live.options.Log = func(string) {}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := b.live.load()
				a, w := &agent.Agent{Dialect: agent.Matrix}, &agent.Tool{Name: "t", SideEffect: agent.Write, Binding: agent.OnServer{Alias: "s"}}
				r := *w
				r.SideEffect = agent.Read
				if first(s.judge(t.Context(), b.live.options, a, "a", w, &call.Call{})) != first(s.judge(t.Context(), b.live.options, a, "a", &r, &call.Call{})) {
					t.Error("half of a policy was in force")
					return
				}
			}
		})
	}
	for i := range 50 {
		if i%2 == 0 {
			b.move("// none")
		} else {
			b.move(both)
		}
		b.live.Problem()
	}
	close(stop)
	readers.Wait()
}

// A manifest cannot impersonate another agent. The entities and the context do not contain the id, name, digest or
// version from the manifest.
func TestIdentityIsTheRegisteredName(t *testing.T) {
	b := newBench(t, `permit (principal == Agent::"coder", action, resource);`)
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	for _, tt := range []struct {
		registered string
		says       agent.Agent
		want       string
	}{
		{"coder", agent.Agent{ID: "org:x/agent:coder", Name: "coder"}, "yes"},
		{"coder", agent.Agent{ID: "org:x/agent:other", Name: "other"}, "yes"},
		{"other", agent.Agent{ID: "coder", Name: "coder", Description: "coder", Digest: "coder"}, "scope_not_granted"},
		{"other", agent.Agent{ID: `Agent::"coder"`, Name: "coder"}, "scope_not_granted"},
	} {
		tt.says.Dialect = agent.GPARS
		d := gate.Decide(context.Background(), &tt.says, tt.registered, tool, &call.Call{}, gate.Rules{Policy: b.live})
		if got := first(d.Reasons); got != tt.want {
			t.Errorf("registered as %s, id %s: got %s, want %s", tt.registered, tt.says.ID, got, tt.want)
		}
	}
}

// A scope without a mapping covers no tool, even if it is granted.
func TestUnmappedScope(t *testing.T) {
	b := newBench(t, Grant{Agent: "a", Server: "s", Scope: "read", By: "me"}.Rule())
	needs := &agent.Agent{Dialect: agent.GPARS, Requirements: []agent.Requirement{{Server: "s", Scopes: []string{"read"}}}}
	ask := func() string {
		return first(b.live.Judge(context.Background(), needs, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}, &call.Call{}))
	}
	b.want("granted, not mapped", ask(), "scope_not_granted")
	if err := home.Replace(filepath.Join(b.dir, "config.toml"), 0o600, []byte("[scopes.s]\nread = [\"t\"]\n")); err != nil {
		t.Fatal(err)
	}
	b.want("granted and mapped", ask(), "yes")
	if err := home.Replace(filepath.Join(b.dir, "config.toml"), 0o600, []byte("[scopes.s]\nread = [\"u\"]\n")); err != nil {
		t.Fatal(err)
	}
	b.want("mapped to another tool", ask(), "scope_not_granted")
}

type catalogue map[string][]string

func (c catalogue) ScopeTools(server, scope string) []string { return c[server+" "+scope] }

func (c catalogue) ScopesOf(server string) []string {
	var all []string
	for key := range c {
		if scope, ok := strings.CutPrefix(key, server+" "); ok {
			all = append(all, scope)
		}
	}
	return all
}

// For each scope, the user's mapping takes precedence over the catalogue.
func TestScopeMap(t *testing.T) {
	s := Scopes{"fs": {"read": {"mine"}, "none": {}}}
	c := catalogue{"fs read": {"theirs"}, "fs write": {"w"}, "fs none": {"n"}}
	for _, tt := range []struct{ scope, tools, from string }{
		{"read", "[mine]", "config.toml"}, {"write", "[w]", "catalogue"}, {"none", "[]", "config.toml"}, {"other", "[]", ""},
	} {
		if m := s.Map(c, "fs", tt.scope); fmt.Sprint(m.Tools) != tt.tools || m.From != tt.from {
			t.Errorf("%s: got the mapping %+v", tt.scope, m)
		}
	}
}

// The reason for a rule that could not be evaluated contains no value from the arguments.
func TestReasonsHoldNoArguments(t *testing.T) {
	b := newBench(t, `forbid (principal, action, resource) when { ip(context.arguments.secret).isLoopback() };
forbid (principal, action, resource) when { decimal(context.arguments.secret) == decimal("1.0") };
forbid (principal, action, resource) when { datetime(context.arguments.secret) == datetime("2026-01-01") };
forbid (principal, action, resource) when { context.arguments.secret > 1 };
forbid (principal, action, resource) when { context.arguments.absent };
forbid (principal, action, resource) when { context.paths.contains("x") };`)
	for _, args := range []string{`{"secret": "canary"}`, `{"path": "/canary` + strings.Repeat("/canary", 300) + `", "secret": "canary"}`} {
		reasons := b.live.Judge(context.Background(), &agent.Agent{}, "a", &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}, &call.Call{Arguments: []byte(args)})
		if text := fmt.Sprint(reasons); strings.Contains(text, "canary") || first(reasons) != "policy_denied" {
			t.Errorf("got the reasons %s", text)
		}
	}
}

// If many rules apply to a call, the reasons name at most maxPermits permit rules, but every forbid rule.
func TestManyReasons(t *testing.T) {
	const many = 3 * maxPermits
	tool := &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	for effect, want := range map[string]int{"permit": 1 + maxPermits + 1, "forbid": many + 1} {
		b := newBench(t, strings.Repeat(effect+` (principal, action, resource) when { context.caller == "me" };`, many))
		reasons := b.live.Judge(context.Background(), &agent.Agent{Dialect: agent.GPARS}, "a", tool, &call.Call{Principal: "me"})
		if len(reasons) != want {
			t.Errorf("got %d reasons for %d %s rules, want %d", len(reasons), many, effect, want)
		}
		if last := reasons[len(reasons)-1].Detail; effect == "permit" && last != "40 more rules permit the call" {
			t.Error(last)
		}
	}
}

// Arguments that exceed the limits are refused only if rules read them.
func TestTooMuch(t *testing.T) {
	b := newBench(t, `forbid (principal, action, resource == Tool::"s/t") when { context.arguments has a && context.arguments.a == "x" };`)
	many := `{"a": [` + strings.Repeat("1,", maxElements) + `1]}`
	ask := func(tool string, args string) string {
		return first(b.live.Judge(context.Background(), &agent.Agent{}, "a", &agent.Tool{Name: tool, Binding: agent.OnServer{Alias: "s"}}, &call.Call{Arguments: []byte(args)}))
	}
	b.want("a rule reads the argument", ask("t", many), "policy_denied")
	b.want("no rule reads the argument", ask("t", strings.Replace(many, `"a"`, `"b"`, 1)), "yes")
	b.want("no rule for the tool", ask("u", many), "yes")
}
