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
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

func newWhy(t *terminal) *cobra.Command {
	var f callFlags
	var who identity.Attributes
	var cmd *cobra.Command
	cmd = verb("why PATH [TOOL]", between(1, 2, "a manifest and a tool"), func(ctx context.Context, args []string) error {
		t.announce(egress.Switches{LoopbackHTTP: f.loopbackHTTP})
		m, err := t.loadFor(f.development, args[0], "")
		if err != nil {
			return err
		}
		tool, err := toolArgument(m, args[1:])
		if err != nil {
			return err
		}
		c, err := f.call(ctx, t, tool)
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("input") {
			c.Arguments = nil // without --input, explain only the tool
		}
		if c.Attributes, err = checkedAttributes(&who); err != nil {
			return err
		}
		v, err := t.why(ctx, m.Remote(), c, nil, nil)
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
	attributeFlags(cmd, &who)
	f.manifestFlag(cmd.Flags())
	return cmd
}

// attributeFlags adds flags that describe the caller's credential.
func attributeFlags(cmd *cobra.Command, who *identity.Attributes) {
	cmd.Flags().StringSliceVar(&who.Groups, "group", nil, "suppose that the caller is in these `groups`, separated by commas")
	cmd.Flags().StringVar(&who.Issuer, "issuer", "", "suppose that this OpenID provider issued the caller's token (`URL`)")
	cmd.Flags().StringVar(&who.ACR, "acr", "", "suppose that the caller's token has this authentication `class`")
	cmd.Flags().StringSliceVar(&who.AMR, "amr", nil, "suppose that the caller signed in with these `methods`, separated by commas")
}

func checkedAttributes(who *identity.Attributes) (*identity.Attributes, error) {
	for _, group := range who.Groups {
		if !identity.ValidGroup(group) {
			return nil, usage("write the name of the group as it appears in Group::\"…\" in your policy",
				"%s is not a valid name for a group", diag.Quote(group))
		}
	}
	return who, nil
}

// supposeKey gives the caller the groups of an API key if the key has the caller's principal. Without these groups, the
// answer would be wrong for each real call with that key. If flags say how the caller signed in, supposeKey does
// nothing.
func (t *terminal) supposeKey(ctx context.Context, b *store.Store, c *call.Call) error {
	if a := c.Attributes; len(a.Groups) > 0 || len(a.AMR) > 0 || a.Issuer != "" || a.ACR != "" {
		return nil
	}
	keys, err := identity.NewAPIKeys(b.Authority).List(ctx)
	if err != nil {
		return missing("", "the API keys cannot be read: %w", err)
	}
	var held, named *identity.APIKey
	for _, k := range keys {
		slices.Sort(k.Groups)
		switch principal := cmp.Or(k.Principal, identity.KeyPrincipal(k.ID)); {
		case keyState(k) != "good":
		case principal == c.Principal && held != nil && !slices.Equal(held.Groups, k.Groups):
			return usage("add --group with the groups of one key; to list the keys, run: ambit key list",
				"%s has several API keys with different groups", diag.Quote(c.Principal))
		case principal == c.Principal:
			held = k
		case k.Name == c.Principal:
			named = k
		}
	}
	switch {
	case held != nil && len(held.Groups) > 0:
		c.Attributes.Groups = held.Groups
		t.notef("the API key of %s has the groups %s", diag.Printable(c.Principal),
			diag.Printable(strings.Join(held.Groups, ", ")))
	case held == nil && named != nil:
		principal := cmp.Or(named.Principal, identity.KeyPrincipal(named.ID))
		t.warnf("%s is the name of an API key; calls with the key have the principal %s", diag.Quote(c.Principal),
			diag.Printable(principal))
		t.hintf("to check calls with the key, run the command with --as %s", diag.ShellWord(principal))
	}
	return nil
}

// whyVerdict is the answer of "ambit why". Its exported fields form the JSON document that --json prints.
type whyVerdict struct {
	Allowed bool          `json:"allowed"`
	Reasons []call.Reason `json:"reasons"`
	// Unknown lists the checks that were not made, with hints on how to make them.
	Unknown []openQuestion `json:"unknown"`

	lacking   bool // whether the call is refused only because this machine lacks something
	asks      bool // whether a person must approve the call
	arguments bool // whether the result depends on arguments that were not given
}

type openQuestion struct {
	Stage  string `json:"stage"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// why determines whether a call would be allowed, without making the call. The calls in the store b count towards the
// limits. If b is nil, why uses the store in the home, if there is one. If flow is nil, why cannot compare the
// arguments with the text that agents have read, because another process has that text.
func (t *terminal) why(
	ctx context.Context, m *manifest.Manifest, c *call.Call, b *store.Store, flow *gateway.Flow,
) (*whyVerdict, error) {
	h := t.home
	if err := checkSettings(h); err != nil {
		return nil, err
	}
	o := gateway.Options{Name: registeredName(h, m), Rules: gate.Rules{Policy: t.rules(h)}, Flow: flow}
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
	if b == nil {
		if b, err = t.existingStore(ctx, ""); err != nil {
			return nil, err
		}
		if b != nil {
			defer b.Close()
			if err := t.supposeKey(ctx, b, c); err != nil {
				return nil, err
			}
		}
	}
	if b != nil {
		o.Store, o.Rules.Grants = b, grant.Of(b).For(m.Agent().ID)
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
	g := gateway.New(who, o)
	v.Allowed, reasons = g.Why(ctx, c)
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
		v.asks = tool.Policy.HumanApproval || o.Operator.Approval.Asks(o.Name, tool)
		if err := w.listOrigin(ctx, g, flow != nil && len(c.Arguments) > 0); err != nil {
			return nil, err
		}
		w.checkNeeds()
		w.listUntried()
	}
	return v, nil
}

// consoleWhy returns a function that explains a call for the console.
func (t *terminal) consoleWhy(
	b *store.Store, flow *gateway.Flow,
) func(context.Context, *manifest.Manifest, *call.Call) (*console.Verdict, error) {
	return func(ctx context.Context, m *manifest.Manifest, c *call.Call) (*console.Verdict, error) {
		v, err := t.why(ctx, m.Remote(), c, b, flow)
		if err != nil {
			return nil, err
		}
		colour, summary := v.summary()
		class := map[style]string{green: "allow", yellow: "unknown", boldRed: "deny"}[colour]
		out := &console.Verdict{Summary: summary, Class: class, Reasons: v.Reasons}
		for _, u := range v.Unknown {
			out.Unchecked = append(out.Unchecked, call.Reason{Stage: u.Stage, Detail: u.Detail})
		}
		return out, nil
	}
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

// toolAsked returns the tool with the given name, <server>/<tool> or URI. It ignores versions in URIs. If there is no
// such tool, toolAsked returns nil.
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
	if bare == nil {
		return gateway.OnServer(a, asked)
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

// summary returns the style and the text of a one-sentence summary of the answer.
func (v *whyVerdict) summary() (style, string) {
	const refused, lacks = "the call would be refused", " because something that the call needs is missing"
	switch {
	case v.lacking && v.arguments:
		return boldRed, refused + lacks + "; when that is fixed, the result depends on the arguments"
	case v.lacking:
		return boldRed, refused + lacks
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
	if w.t.rules(w.t.home).Foresee(w.agent, name, w.tool, w.call) == policy.Depends {
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
		w.checkSignIn(b.Alias)
	}
}

// checkSignIn adds a refusal if the sign-in to the tool's server has ended. If there is no sign-in, checkSignIn adds no
// refusal, but explains how to sign in: only the server knows whether it needs a sign-in.
func (w *openQuestions) checkSignIn(alias string) {
	for _, gap := range signInGaps(w.t.home, w.m, w.agent) {
		switch {
		case gap.server != alias:
		case gap.ended != nil:
			w.addRefusal(gap.ended)
		default:
			w.add("act", "if the server needs a sign-in, run: "+gap.command, "there is no sign-in for server %s", alias)
		}
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
		for _, ref := range s.Refs() {
			if _, ok := lookup(ref); ok || slices.Contains(seen, ref) {
				continue
			}
			seen = append(seen, ref)
			r := call.Refuse(credential.Stage, call.CredentialMissing, "server %s needs %s, which is not set", s.Alias, ref)
			r.Hint = fmt.Sprintf("set the environment variable %s, or run: ambit secret set %s %s",
				ref, diag.ShellWord(source.Agent), diag.ShellWord(ref))
			w.addRefusal(r)
		}
	}
}

// listOrigin lists the origin of the arguments as unchecked, or adds the reason why the origin does not matter for this
// call.
func (w *openQuestions) listOrigin(ctx context.Context, g *gateway.Gateway, checked bool) error {
	if checked || !g.FlowMatters(w.tool) {
		return nil
	}
	until, err := g.ReadUntil(ctx, w.call.Principal)
	if err != nil {
		return missing("", "cannot read from the store whether agents have read untrusted text: %w", err)
	}
	known := func(detail string) {
		w.verdict.Reasons = append(w.verdict.Reasons, call.Reason{Stage: "flow", Allowed: true, Detail: detail})
	}
	if w.agent.Labels().All() {
		known(daemon.AllLabels)
	}
	if until.IsZero() {
		known("the principal's agents have not read any untrusted text recently")
		return nil
	}
	w.add("flow", "to compare the arguments with the text, use the policy page of the console",
		"the principal's agents have read untrusted text; until %s, a call that uses a value from it may need approval",
		until.Local().Format("15:04"))
	return nil
}

// listUntried lists the checks that only a real call can make.
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
		w.add("act", "", "the arguments do not match the server's locked schema, so the server will probably refuse them: %s",
			r.Message)
	}
}
