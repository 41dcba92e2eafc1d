package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/gate"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

func newWhy(t *terminal) *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:     "why PATH TOOL",
		GroupID: groupDecide,
		Short:   "Explain whether a call would be allowed, and why",
		Long: "Explain whether a call would be allowed, stage by stage and with every reason, without making it or starting\n" +
			"anything. Open questions, such as those that depend on arguments that were not given, are listed too. Exits 1\n" +
			"if the call would be refused, and 3 if only something that it needs, such as a credential, is missing here.",
		Example: "  ambit why agents/default.json write_file --input '{\"path\": \"notes.txt\", \"content\": \"\"}'\n  ambit why agents/forge.json shell_exec --skill SKILL.md",
		Args:    exactly(2, "a manifest and a tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.announce(egress.Switches{LoopbackHTTP: f.loopbackHTTP})
			m, err := t.loadFor(f.development, args[0], "")
			if err != nil {
				return err
			}
			m = m.Remote()
			c, err := f.call(t, args[1])
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("input") {
				c.Arguments = nil // the question is about the tool
			}
			v, err := t.why(cmd.Context(), m, c)
			if err != nil {
				return err
			}
			err = t.judge(v.Allowed, v, func() { t.verdict(v) })
			if errors.Is(err, errNo) && v.lacking {
				return errMissing
			}
			return err
		},
	}
	f.flags(cmd)
	f.manifestFlag(cmd.Flags())
	return cmd
}

// whyVerdict is the answer of ambit why.
type whyVerdict struct {
	Allowed bool          `json:"allowed"`
	Reasons []call.Reason `json:"reasons"`
	// Unknown lists what was not checked, and how to find out.
	Unknown []openQuestion `json:"unknown"`

	lacking   bool // refused only because something is missing here
	asks      bool // a person has to approve
	arguments bool // the verdict depends on arguments that were not given
}

type openQuestion struct {
	Stage  string `json:"stage"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
}

// why asks a gateway that makes no calls. If there is a store, the limits used so far count.
func (t *terminal) why(ctx context.Context, m *manifest.Manifest, c *call.Call) (*whyVerdict, error) {
	h := t.home
	if err := checkSettings(h); err != nil {
		return nil, err
	}
	o := gateway.Options{Name: registered(h, m), Rules: gate.Rules{Policy: t.rules(h)}}
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
		if o.Books, err = t.openStore(ctx, ""); err != nil {
			return nil, err
		}
		defer o.Books.Close()
		o.Rules.Grants = grant.Of(o.Books).For(m.Agent().ID)
	} else if limited(tool) && len(c.Arguments) > 0 {
		b, end, err := emptyStore(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		o.Books = b
	}
	v := &whyVerdict{Reasons: []call.Reason{}, Unknown: []openQuestion{}}
	var reasons []call.Reason
	v.Allowed, reasons = gateway.New(who, o).Why(ctx, c)
	for _, r := range reasons {
		if !r.Allowed {
			r.Hint = cmp.Or(aboutArguments(r.Code, c, tool, m.Path), r.Refusal().HintFor(m.Path))
		}
		v.Reasons = append(v.Reasons, r)
	}
	if len(c.Arguments) == 0 {
		v.Reasons[0].Detail = "no arguments were given"
	}
	if tool == nil {
		return v, nil
	}
	w := openQuestions{t: t, home: h, m: m, agent: who, tool: tool, call: c, verdict: v, operator: o.Operator}
	w.unjudged(o.Name)
	if v.Allowed {
		v.asks = tool.Policy.HumanApproval
		w.needs()
		w.untried()
	}
	return v, nil
}

// emptyStore opens a temporary store, to check limits in a home without one.
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

// toolAsked returns the declared tool of a name or URI, regardless of the version that the
// URI pins; nil if there is none.
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
	for _, r := range v.Reasons {
		mark := t.paint(green, "✓")
		detail := diag.Printable(r.Detail)
		if !r.Allowed {
			mark = t.paint(red, "✗")
			detail += " " + t.paint(dim, "["+string(r.Code)+"]")
		}
		rows, hints = append(rows, []string{mark, r.Stage, detail}), append(hints, r.Hint)
	}
	for _, u := range v.Unknown {
		rows, hints = append(rows, []string{t.paint(yellow, "?"), u.Stage, diag.Printable(u.Detail)}), append(hints, u.Hint)
	}
	t.table("", rows)
	for i, hint := range hints {
		if hint != "" && !slices.Contains(hints[:i], hint) {
			t.printf("  %s %s\n", t.paint(dim, "hint:"), diag.Printable(hint))
		}
	}
	t.printf("%s\n", v.sentence(t.paint))
}

// sentence describes the verdict, and claims no more than is known.
func (v *whyVerdict) sentence(paint func(style, string) string) string {
	switch {
	case v.lacking && v.arguments:
		return paint(boldRed, "it would be refused because something it needs is missing; with that, it depends on the arguments")
	case v.lacking:
		return paint(boldRed, "it would be refused because something it needs is missing")
	case !v.Allowed && v.arguments:
		return paint(boldRed, "it would be refused without arguments; others may be allowed")
	case !v.Allowed:
		return paint(boldRed, "it would be refused")
	}
	colour, text := green, "it would be allowed"
	if v.asks {
		colour, text = yellow, text+" once a person has approved it"
	}
	if v.arguments {
		colour, text = yellow, strings.Replace(text, "would", "can", 1)+"; that depends on the arguments"
	}
	return paint(colour, text)
}
