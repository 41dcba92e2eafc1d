package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

func newWhy(t *terminal) *cobra.Command {
	var f callFlags
	var cmd *cobra.Command
	cmd = verb("why PATH TOOL", exactly(2, "a manifest and a tool"), func(ctx context.Context, args []string) error {
		t.announce(egress.Switches{LoopbackHTTP: f.loopbackHTTP})
		m, err := t.loadFor(f.development, args[0], "")
		if err != nil {
			return err
		}
		c, err := f.call(t, args[1])
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("input") {
			c.Arguments = nil // without --input, check only the tool
		}
		v, err := t.why(ctx, m.Remote(), c)
		if err != nil {
			return err
		}
		err = t.judge(v.Allowed, v, func() { t.verdict(v) })
		if errors.Is(err, errNo) && v.lacking {
			return errMissing
		}
		return err
	})
	f.flags(cmd)
	f.manifestFlag(cmd.Flags())
	return cmd
}

// whyVerdict is the answer of "ambit why". Its exported fields form the JSON document that --json prints.
type whyVerdict struct {
	Allowed bool          `json:"allowed"`
	Reasons []call.Reason `json:"reasons"`
	// Unknown lists the checks that were not made, with hints on how to make them.
	Unknown []openQuestion `json:"unknown"`

	lacking   bool // refused only because this machine lacks something
	asks      bool // a person must approve the call
	arguments bool // the result depends on arguments that were not given
}

type openQuestion struct {
	Stage  string `json:"stage"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// why determines whether a call would be allowed, without making the call. If the home has a store, earlier calls count
// towards the limits.
func (t *terminal) why(ctx context.Context, m *manifest.Manifest, c *call.Call) (*whyVerdict, error) {
	h := t.home
	if err := checkSettings(h); err != nil {
		return nil, err
	}
	o := gateway.Options{Name: registeredName(h, m), Rules: gate.Rules{Policy: t.rules(h)}}
	var err error
	if o.Operator, err = operatorGuardrails(h); err != nil {
		return nil, err
	}
	if o.Quotas, err = limit.ReadQuotas(h); err != nil {
		return nil, err
	}
	resolved, err := t.resolveAndWarn(ctx, m)
	if err != nil {
		return nil, err
	}
	who := resolved.Agent()
	tool := toolAsked(who, c.Tool)
	if _, err := os.Stat(h.State()); err == nil {
		if o.Store, err = t.openStore(ctx, ""); err != nil {
			return nil, err
		}
		defer o.Store.Close()
		o.Rules.Grants = grant.Of(o.Store).For(m.Agent().ID)
	} else if limited(tool) && len(c.Arguments) > 0 {
		b, end, err := emptyStore(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		o.Store = b
	}
	v := &whyVerdict{Reasons: []call.Reason{}, Unknown: []openQuestion{}}
	var reasons []call.Reason
	v.Allowed, reasons = gateway.New(who, o).Why(ctx, c)
	for _, r := range reasons {
		if !r.Allowed {
			r.Hint = cmp.Or(argumentHint(r.Code, c, tool, m.Path), r.Refusal().HintFor(m.Path))
		}
		v.Reasons = append(v.Reasons, r)
	}
	if len(c.Arguments) == 0 {
		v.Reasons[0].Detail = "no arguments were given"
	}
	if tool == nil {
		return v, nil
	}
	w := openQuestions{t: t, m: m, agent: who, tool: tool, call: c, verdict: v, operator: o.Operator}
	w.listArgumentChecks(o.Name)
	if v.Allowed {
		v.asks = tool.Policy.HumanApproval
		w.checkNeeds()
		w.listUntried()
	}
	return v, nil
}

// emptyStore creates a temporary store, because the gateway cannot check limits without a store.
func emptyStore(ctx context.Context) (b *store.Store, end func(), err error) {
	dir, err := os.MkdirTemp("", "ambit-why-")
	if err == nil {
		b, err = store.Open(ctx, home.At(dir), "")
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, missing("", "the limits cannot be checked: %w", err)
	}
	return b, func() { b.Close(); os.RemoveAll(dir) }, nil
}

func limited(t *agent.Tool) bool { return t != nil && (t.Policy.Rate != nil || t.Policy.Spend != nil) }

// toolAsked returns the tool with the given name or URI, or nil. Versions in URIs are ignored.
func toolAsked(a *agent.Agent, asked string) *agent.Tool {
	var bare *agent.Tool
	for i := range a.Tools {
		t := &a.Tools[i]
		if gateway.ServedName(a, t) == asked {
			return t
		}
		if name, _, _ := strings.Cut(asked, "@"); t.URI != nil && strings.Contains(asked, "://") {
			if declared, _, _ := strings.Cut(t.URI.String(), "@"); declared == name {
				return t
			}
		}
		if t.Name == asked {
			bare = t
		}
	}
	return bare
}

func (t *terminal) verdict(v *whyVerdict) {
	rows := make([][]string, 0, len(v.Reasons)+len(v.Unknown))
	var hints []string
	add := func(colour style, mark, stage, detail, hint string) {
		rows = append(rows, []string{t.paint(colour, mark), stage, detail})
		if hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	for _, r := range v.Reasons {
		if detail := diag.Printable(r.Detail); r.Allowed {
			add(green, "✓", r.Stage, detail, r.Hint)
		} else {
			add(red, "✗", r.Stage, detail+" "+t.paint(dim, "["+string(r.Code)+"]"), r.Hint)
		}
	}
	for _, u := range v.Unknown {
		add(yellow, "?", u.Stage, diag.Printable(u.Detail), u.Hint)
	}
	t.table("", rows)
	for _, hint := range hints {
		t.printf("  %s %s\n", t.paint(dim, "hint:"), diag.Printable(hint))
	}
	colour, text := v.summary()
	t.printf("%s\n", t.paint(colour, text))
}

// summary returns a one-sentence summary of the answer, and the style to print it in.
func (v *whyVerdict) summary() (style, string) {
	const refused = "the call would be refused"
	switch {
	case v.lacking && v.arguments:
		return boldRed, refused + " because something it needs is missing; once that is fixed, the arguments decide"
	case v.lacking:
		return boldRed, refused + " because something it needs is missing"
	case !v.Allowed && v.arguments:
		return boldRed, refused + " without arguments; with arguments, it might be allowed"
	case !v.Allowed:
		return boldRed, refused
	case v.asks && v.arguments:
		return yellow, "depending on the arguments, the call would be allowed after a person approves it"
	case v.arguments:
		return yellow, "whether the call would be allowed depends on the arguments"
	case v.asks:
		return yellow, "the call would be allowed after a person approves it"
	}
	return green, "the call would be allowed"
}

// openQuestions completes the answer of "ambit why". It lists the checks that were not made, and adds refusals for
// missing credentials and programs.
type openQuestions struct {
	t        *terminal
	m        *manifest.Manifest
	agent    *agent.Agent
	tool     *agent.Tool
	call     *call.Call
	operator guard.Operator
	verdict  *whyVerdict
}

func (w *openQuestions) add(stage, hint, format string, args ...any) {
	w.verdict.Unknown = append(w.verdict.Unknown, openQuestion{stage, fmt.Sprintf(format, args...), hint})
}

// listArgumentChecks lists the checks that need arguments. If arguments were given, it lists nothing.
func (w *openQuestions) listArgumentChecks(name string) {
	if len(w.call.Arguments) > 0 {
		return
	}
	about := func(stage, format string, args ...any) {
		w.verdict.arguments = true
		w.add(stage, "pass the arguments: --input '{…}'", format, args...)
	}
	if w.t.rules(w.t.home).Foresee(w.agent, name, w.tool, w.call.Principal) == policy.Depends {
		about("gate", "some rules in your policy depend on the arguments")
	}
	if !w.verdict.Allowed {
		return
	}
	rails := guard.Merge(w.operator, w.agent.Guardrails)
	var checks []string
	if w.tool.InputSchema != "" {
		checks = append(checks, "the tool's schema")
	}
	if rails.MaxLength > 0 {
		checks = append(checks, fmt.Sprintf("at most %d bytes", rails.MaxLength))
	}
	if n := len(rails.Input.Deny); n > 0 {
		checks = append(checks, count(n, "deny pattern"))
	}
	if len(checks) > 0 {
		about(guard.StageIn, "these checks of the arguments were skipped: %s", strings.Join(checks, ", "))
	}
	if limited(w.tool) {
		about("limit", "these limits were not checked: %s", strings.Join(limitsOf(w.tool), ", "))
	}
}

// checkNeeds adds a refusal for every missing credential or program that the call needs.
func (w *openQuestions) checkNeeds() {
	source := &credential.Source{Agent: registeredName(w.t.home, w.m), Vault: credential.Open(w.t.home)}
	switch b := w.tool.Binding.(type) {
	case agent.HTTP:
		if slot := w.agent.Slot(b.AuthRef); slot != nil {
			_, err := source.Slot(w.agent, slot)
			w.addRefusal(err)
		}
	case agent.RunProgram:
		w.checkEntry()
		for _, slot := range w.agent.Slots {
			if slot.Required {
				_, err := source.Slot(w.agent, &slot)
				w.addRefusal(err)
			}
		}
	case agent.OnServer:
		w.checkReferences(source, b.Alias)
	}
}

// addRefusal adds err to the answer if err is a refusal. It ignores other errors.
func (w *openQuestions) addRefusal(err error) {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		w.verdict.Allowed, w.verdict.lacking = false, true
		w.verdict.Reasons = append(w.verdict.Reasons, r.Deny(r.Stage))
	}
}

// checkEntry adds a refusal if the program file of a Covenant agent does not exist.
func (w *openQuestions) checkEntry() {
	if w.agent.Dialect != agent.Covenant {
		return
	}
	file := w.agent.Program.Entry
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(w.m.Path), file)
	}
	if _, err := os.Stat(file); err == nil {
		return
	}
	r := call.Refuse("act", call.ProgramFailed, "the entry %s cannot be found", diag.Quote(w.agent.Program.Entry))
	r.Hint = "build the program first, or correct its path in the manifest; the path is relative to the manifest"
	w.addRefusal(r)
}

// checkReferences adds a refusal for every missing credential of the servers. A GPARS agent needs only the server of
// the tool. Other agents need all their servers.
func (w *openQuestions) checkReferences(source *credential.Source, alias string) {
	lookup := source.Lookup(w.agent)
	var seen []string
	for _, s := range w.agent.Servers {
		if w.agent.Dialect == agent.GPARS && s.Alias != alias {
			continue
		}
		for _, set := range slices.Concat(s.Env, s.Headers) {
			for _, ref := range set.Refs {
				if _, ok := lookup(ref); ok || slices.Contains(seen, ref) {
					continue
				}
				seen = append(seen, ref)
				r := call.Refuse(credential.Stage, call.CredentialMissing, "server %s needs %s, which is not set", s.Alias, ref)
				r.Hint = fmt.Sprintf("run: ambit secret set %s %s; or set the environment variable %s",
					diag.ShellWord(source.Agent), diag.ShellWord(ref), ref)
				w.addRefusal(r)
			}
		}
	}
}

// listUntried lists the questions that only a real call can answer.
func (w *openQuestions) listUntried() {
	switch b := w.tool.Binding.(type) {
	case agent.OnServer:
		w.checkLockedSchema(b.Alias)
		w.add("act", "to verify the server, run: ambit verify "+diag.ShellWord(w.m.Path),
			"server %s was not started; a real call first starts and verifies the server", b.Alias)
	case agent.RunProgram:
		w.add("act", "to check whether programs can run here, run: ambit doctor", "the program was not started")
	case agent.Compose:
		w.add("act", "", "the agent %s must also allow the call; its tool %s was not checked", b.Agent, b.Tool)
	}
}

// checkLockedSchema warns if the arguments do not match the schema in the lock file. It does not add a refusal, because
// the server makes the decision.
func (w *openQuestions) checkLockedSchema(alias string) {
	lock, err := readLock(filepath.Dir(w.m.Path))
	server := lock.Server(w.agent.ID, alias)
	if err != nil || server == nil || len(w.call.Arguments) == 0 {
		return
	}
	schema := rawjson.Lookup([]byte(server.Tools[w.tool.Name].Definition), "inputSchema")
	if r := guard.NewSchema(string(schema)).Input(context.Background(), w.call.Arguments); r != nil {
		w.add("act", "", "the server will probably refuse the arguments; they do not match its locked schema: %s", r.Message)
	}
}
