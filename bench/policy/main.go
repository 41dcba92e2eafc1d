// Command policy measures the cost of a policy decision with 200 policy rules. It compares ambit with Cedar alone,
// which evaluates all rules for every call.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/policy"
)

const (
	rules = 200
	calls = 20_000
)

// usual returns a typical policy. Most rules apply to one agent, and a few apply to all agents.
func usual() string {
	var b strings.Builder
	for i := range rules - 5 {
		fmt.Fprintf(&b, `permit (principal == Agent::"agent%d", action == Action::"call", resource in Server::"registry.openmcp.org/filesystem")
when { resource.scopes.contains("read") && context.paths_all_under.contains("/data/%d") };
`, i%65, i)
	}
	b.WriteString(`permit (principal == Agent::"agent1", action, resource in Server::"registry.openmcp.org/filesystem") when { resource.scopes.contains("read") };
forbid (principal, action, resource) when { context.paths_any_under.containsAny(["/etc", "/root"]) };
forbid (principal, action, resource) when { resource.side_effect == "shell" && context.caller like "guest*" };
forbid (principal, action, resource) when { context.arguments has force && context.arguments.force == true };
forbid (principal, action, resource) when { context.time < datetime("2020-01-01") };
`)
	return b.String()
}

// guards returns rules that all apply to the call. Each rule compares an argument with a text.
func guards() string {
	var b strings.Builder
	b.WriteString("permit (principal, action, resource);\n")
	for i := range rules - 1 {
		fmt.Fprintf(&b, `forbid (principal, action, resource) when { context.arguments has mode && context.arguments.mode == "m%d" };
`, i)
	}
	return b.String()
}

// patterns returns rules that all match an argument against a pattern.
func patterns() string { return strings.ReplaceAll(guards(), `mode == "m`, `mode like "m`) }

// sums returns rules that all do arithmetic with an argument.
func sums() string {
	var b strings.Builder
	b.WriteString("permit (principal, action, resource);\n")
	for i := range rules - 1 {
		fmt.Fprintf(&b, "forbid (principal, action, resource) when { context.arguments has count && context.arguments.count * 2 > %d };\n", 1000+i)
	}
	return b.String()
}

// permits returns policy rules, each of which permits the call.
func permits() string {
	var b strings.Builder
	for i := range rules {
		fmt.Fprintf(&b, "permit (principal, action, resource) when { context.arguments has mode && context.arguments.mode != \"m%d\" };\n", i)
	}
	return b.String()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "policy:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "ambit-bench-policy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "a decision with %d rules\tp50\tp99\tdecisions/s\tallocations\tbytes\tp50 to Cedar's\n", rules)
	for _, set := range []struct{ name, text, arguments string }{
		{"usual rules, a path", usual(), `{"path": "/data/notes/today.md"}`},
		{"usual rules, an odd path", usual(), `{"path": "/data/%2e%2e/notes\\today.md"}`},
		{"every rule applies, a text", guards(), `{"path": "/data/notes/today.md", "mode": "fast", "count": 3}`},
		{"every rule applies, a pattern", patterns(), `{"path": "/data/notes/today.md", "mode": "fast", "count": 3}`},
		{"every rule applies, a sum", sums(), `{"path": "/data/notes/today.md", "mode": "fast", "count": 3}`},
		{"every rule permits it", permits(), `{"path": "/data/notes/today.md", "mode": "fast", "count": 3}`},
	} {
		if err := measure(w, dir, set.name, set.text, set.arguments); err != nil {
			return err
		}
	}
	return w.Flush()
}

func measure(w *tabwriter.Writer, dir, name, text, arguments string) error {
	file := filepath.Join(dir, "policy.cedar")
	config := filepath.Join(dir, "config.toml")
	for path, content := range map[string]string{file: text, config: "[scopes.\"registry.openmcp.org/filesystem\"]\nread = [\"read_file\"]\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			return err
		}
	}
	live := policy.Open(policy.Options{File: file, Config: config})
	a := &agent.Agent{Dialect: agent.GPARS, Digest: "sha256:x", Requirements: []agent.Requirement{{Server: "registry.openmcp.org/filesystem", Scopes: []string{"read"}}}}
	t := &agent.Tool{Name: "read_file", SideEffect: agent.Read, Binding: agent.OnServer{Alias: "registry.openmcp.org/filesystem"}}
	c := &call.Call{Principal: "me@local", Arguments: []byte(arguments)}
	for _, r := range live.Judge(context.Background(), a, "agent1", t, c) {
		if !r.Allowed && !strings.Contains(name, "odd") {
			return fmt.Errorf("%s: %s", name, r.Detail)
		}
	}
	set, err := cedar.NewPolicySetFromBytes(file, []byte(text))
	if err != nil {
		return err
	}
	entities, request := plain()
	ours := row("ambit: "+name, func() { live.Judge(context.Background(), a, "agent1", t, c) })
	alone := row("Cedar alone: "+name, func() { cedar.Authorize(set, entities, request) })
	fmt.Fprintf(w, "%s\t%.2f\n%s\t1\n", ours.text, float64(ours.p50)/float64(alone.p50), alone.text)
	return nil
}

// plain returns the measured call as a Cedar request, together with its entities. The request is prepared in advance,
// because the benchmark measures only Cedar's evaluation.
func plain() (types.EntityMap, cedar.Request) {
	server := types.NewEntityUID("Server", "registry.openmcp.org/filesystem")
	tool := types.NewEntityUID("Tool", "registry.openmcp.org/filesystem/read_file")
	who := types.NewEntityUID("Agent", "agent1")
	text := func(all ...string) types.Set {
		var values []types.Value
		for _, s := range all {
			values = append(values, types.String(s))
		}
		return types.NewSet(values...)
	}
	entities := types.EntityMap{
		tool: {UID: tool, Parents: types.NewEntityUIDSet(server), Attributes: types.NewRecord(types.RecordMap{"side_effect": types.String("read"), "scopes": text("read")})},
		who:  {UID: who}, server: {UID: server},
	}
	under := text("/", "/data", "/data/notes", "/data/notes/today.md")
	return entities, cedar.Request{Principal: who, Action: types.NewEntityUID("Action", "call"), Resource: tool, Context: types.NewRecord(types.RecordMap{
		"arguments": types.NewRecord(types.RecordMap{"path": types.String("/data/notes/today.md"), "mode": types.String("fast"), "count": types.Long(3)}),
		"caller":    types.String("me@local"), "time": types.NewDatetime(time.Now()), "paths_any_under": under, "paths_all_under": under,
	})}
}

type measured struct {
	text string
	p50  time.Duration
}

// row measures one kind of decision and returns a row of the table.
func row(name string, decide func()) measured {
	for range calls / 10 {
		decide()
	}
	times := make([]time.Duration, calls)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for i := range times {
		at := time.Now()
		decide()
		times[i] = time.Since(at)
	}
	whole := time.Since(start)
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	text := fmt.Sprintf("%s\t%.1f µs\t%.1f µs\t%.0f\t%d\t%d", name,
		float64(times[calls/2].Nanoseconds())/1e3, float64(times[calls*99/100].Nanoseconds())/1e3, float64(calls)/whole.Seconds(),
		(after.Mallocs-before.Mallocs)/calls, (after.TotalAlloc-before.TotalAlloc)/calls)
	return measured{text, times[calls/2]}
}
