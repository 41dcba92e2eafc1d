package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/manifest"
)

func newInspect(t *terminal) *cobra.Command {
	var dialect string
	var dev development
	cmd := verb("inspect PATH", exactly(1, "one manifest"), func(ctx context.Context, args []string) error {
		t.announce(egress.Switches{LoopbackHTTP: dev.loopbackHTTP})
		m, err := t.loadFor(dev, args[0], dialect)
		if err != nil {
			return err
		}
		operator, err := operatorGuardrails(t.home)
		if err != nil {
			return err
		}
		m = m.Remote() // inspect the agent that "ambit call" and "ambit run" would execute
		guardrails := guard.Merge(operator, m.Agent().Guardrails)
		needs, err := t.findNeeds(ctx, m)
		if err != nil {
			return err
		}
		if needs.grants, err = t.grantsFor(ctx, m.Agent()); err != nil {
			needs.watch = append(needs.watch, "the grants cannot be read: "+err.Error())
		}
		return t.show(t.inspection(m, needs, guardrails), func() {
			t.inspect(m, needs, guardrails)
			t.showNeeds(needs)
		})
	})
	dev.manifestFlag(cmd.Flags())
	dialectFlag(cmd, &dialect)
	return cmd
}

func (t *terminal) facts(list []console.Fact) (rows [][]string) {
	for _, f := range list {
		rows = t.fact(rows, strings.ToLower(f.Label), f.Values...)
	}
	return rows
}

// notNil returns a copy of a list. The copy is never nil, so JSON contains [] and not null.
func notNil[T any](list []T) []T { return append([]T{}, list...) }

// inspection returns the JSON document of "ambit inspect". The guardrails g combine the agent's guardrails with the
// operator's guardrails.
func (t *terminal) inspection(m *manifest.Manifest, needs needSet, g guard.Rails) map[string]any {
	a, r := needs.agent, needs.reach
	hosts := each(r.Hosts, func(h agent.Host) string { return h.Name })
	secrets := each(r.Secrets, func(s agent.Secret) string { return s.Name })
	details := each(r.Secrets, func(s agent.Secret) map[string]any {
		return map[string]any{
			"name": s.Name, "for": s.For, "hosts": notNil(s.Hosts), "scopes": notNil(s.Scopes), "required": s.Required,
		}
	})
	programs := each(r.Programs, func(p agent.Command) map[string]any {
		return map[string]any{"for": p.For, "argv": secretlike.Redact(p.Argv), "digest": p.Digest}
	})
	delivery := a.Delivery
	delivery.Args = secretlike.Redact(delivery.Args)
	return map[string]any{
		"id": a.ID, "called": registeredName(t.home, m), "dialect": a.Dialect, "kind": a.Kind, "name": a.Name,
		"description": a.Description, "prompt": a.Prompt, "version": a.Version, "digest": a.Digest,
		"side_effects": notNil(r.SideEffects), "tools": toolReports(a, needs.hidden),
		"hosts": hosts, "any_host": r.AnyHostReason, "paths": notNil(r.Paths), "secrets": secrets, "secret_details": details, "programs": programs,
		"settings": notNil(daemon.Settings(a)), "agents": notNil(r.Agents), "requirements": notNil(a.Requirements),
		"required_servers": needs.required, "optional_servers": needs.optional, "servers": notNil(needs.servers),
		"capabilities": a.Capabilities, "grants": grantDocuments(needs.grants),
		"resources": a.Resources, "settlement": a.Settlement, "delivery": delivery, "skills": a.Skills,
		"guardrails": a.Guardrails, "effective_guardrails": map[string]any{
			"max_length": g.MaxLength, "deny_patterns": notNil(g.Input.Deny), "deny_defaults": g.Input.DenyDefaults,
			"pii_redaction": notNil(g.Input.PII), "on_leak": g.OnLeak, "on_result": g.OnResult,
			"on_injection": g.OnInjection, "output_schemas": len(g.Schemas),
		},
		"labels": a.Labels(), "watch": notNil(needs.watch), "warnings": notNil(m.Diagnostics),
	}
}

func (t *terminal) inspect(m *manifest.Manifest, needs needSet, guardrails guard.Rails) {
	a := needs.agent
	t.printf("%s  %s\n", t.paint(bold, diag.Printable(a.Name)), t.paint(dim, diag.Printable(a.ID)))
	if a.Description != "" {
		t.printf("%s\n", wrap(diag.Printable(a.Description), "  ", t.width))
	}
	t.printf("\n")
	name := diag.Printable(registeredName(t.home, m)) + "  " + t.paint(dim, "(in commands, keys and addresses)")
	facts := [][]string{{t.paint(dim, "called"), name}}
	facts = t.fact(facts, "dialect", string(a.Dialect)+", "+string(a.Kind))
	facts = t.fact(facts, "digest", a.Digest)
	facts = t.fact(facts, "version", a.Version)
	t.table("  ", t.wrapLastColumn(facts))
	may := append(daemon.Facts(a, needs.reach), daemon.Granted(needs.grants)...)
	t.section("What the agent may do", t.facts(may))
	t.servers(needs)
	t.section("Limits", t.limits(a, guardrails))
	t.toolList(a, needs.hidden)
	t.prompt(a)
	t.lookTwice(needs.watch)
	if len(m.Diagnostics) > 0 {
		t.printf("\n%s\n", t.paint(bold, "Warnings"))
		for _, d := range m.Diagnostics {
			place := t.paint(yellow, fmt.Sprintf("%d:%d", d.Line, d.Column))
			line := place + " " + d.Message + " " + t.paint(dim, "["+d.Code+"]")
			if t.cut {
				line = strings.TrimLeft(wrap(line, "    ", t.width), " ")
			}
			t.printf("  %s\n", line)
		}
	}
}

// servers prints what each tool server can use.
func (t *terminal) servers(needs needSet) {
	var rows [][]string
	for _, s := range needs.servers {
		remote := needs.agent.Server(s.Alias).Transport == agent.StreamableHTTP
		rows = t.fact(rows, diag.Printable(s.Alias), s.Lines(remote)...)
	}
	t.section("What its tool servers can use", rows)
}

func (t *terminal) lookTwice(notes []string) {
	if len(notes) == 0 {
		return
	}
	t.printf("\n%s\n", t.paint(bold, "Look twice"))
	for _, n := range notes {
		t.printf("  %s %s\n", t.paint(yellow, "!"), strings.TrimLeft(wrap(diag.Printable(n), "    ", t.width), " "))
	}
}

func (t *terminal) section(title string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	t.printf("\n%s\n", t.paint(bold, title))
	t.table("  ", t.wrapLastColumn(rows))
}

// wrapLastColumn wraps the last column of every row that is wider than the terminal. If the output is not a terminal,
// the rows stay unchanged.
func (t *terminal) wrapLastColumn(rows [][]string) [][]string {
	if !t.cut || len(rows) == 0 {
		return rows
	}
	last := len(rows[0]) - 1
	space := t.width - len("  ")
	for _, width := range widths(rows)[:last] {
		space -= width + len("  ")
	}
	var out [][]string
	for _, r := range rows {
		if visible(r[last]) <= space {
			out = append(out, r)
			continue
		}
		for i, line := range strings.Split(wrap(r[last], "", max(space, 20)), "\n") {
			broken := make([]string, len(r))
			if i == 0 {
				copy(broken, r)
			}
			broken[last] = line
			out = append(out, broken)
		}
	}
	return out
}

// fact appends one row to rows for each non-empty value. The label appears only in the first new row.
func (t *terminal) fact(rows [][]string, label string, values ...string) [][]string {
	for _, v := range values {
		if v != "" {
			rows = append(rows, []string{t.paint(dim, label), diag.Printable(v)})
			label = ""
		}
	}
	return rows
}

func (t *terminal) limits(a *agent.Agent, guardrails guard.Rails) [][]string {
	rows := t.facts(daemon.Limits(a))
	if guardrails.MaxLength > 0 {
		rows = t.fact(rows, "arguments", fmt.Sprintf("at most %d bytes", guardrails.MaxLength))
	}
	denied := slices.Clone(guardrails.Input.Deny)
	if guardrails.Input.DenyDefaults {
		denied = append(denied, "the patterns that ship with ambit")
	}
	rows = t.fact(rows, "denied", denied...)
	redacted := strings.Join(guardrails.Input.PII, ", ")
	if redacted != "" && guardrails.OnResult == agent.ResultRedact {
		redacted += ", in arguments and results"
	}
	rows = t.fact(rows, "redacted", redacted)
	if len(guardrails.Schemas) > 0 {
		rows = t.fact(rows, "results", "checked against a schema")
	}
	if p := a.Program; p != nil && p.Contract != agent.OneLine {
		rows = t.fact(rows, "sandbox", "runs only in isolation, and reaches only the hosts above")
	}
	if len(rows) > 0 || a.Dialect == agent.FindAgent {
		scan := "results are always scanned for secrets"
		if guardrails.OnLeak == agent.LeakBlock {
			scan = "a result that contains a secret is withheld"
		}
		rows = t.fact(rows, "secrets", scan)
	}
	if guardrails.OnInjection != agent.InjectionMark {
		rows = t.fact(rows, "injections", guardrails.Injections())
	}
	return rows
}

func (t *terminal) toolList(a *agent.Agent, hidden []bool) {
	reports := toolReports(a, hidden)
	if len(reports) == 0 {
		return
	}
	blocked, widest := 0, 0
	for _, r := range reports {
		widest = max(widest, len(r.Server)+len(r.Name)+1)
	}
	rows := make([][]string, 0, len(reports))
	for _, r := range reports {
		name := r.Name
		if r.Server != "" {
			name = r.Server + "/" + r.Name
		}
		text := diag.Printable(r.Description)
		if t.cut {
			text = clip(text, t.width-widest-16)
		}
		class := t.paint(classStyle(r.SideEffect), string(r.SideEffect))
		if !r.Callable {
			blocked++
			class = t.paint(dim, string(r.SideEffect))
			text = "✗ " + r.Why
		}
		rows = append(rows, []string{class, diag.Printable(name), t.paint(dim, text)})
		if len(r.Limits) > 0 { // limits are never shortened
			rows = append(rows, []string{"", "", strings.Join(r.Limits, ", ")})
		}
	}
	title := "Tools (" + fmt.Sprint(len(reports))
	if blocked > 0 {
		title += fmt.Sprintf(", %d not callable", blocked)
	}
	t.section(title+")", rows)
}

func (t *terminal) prompt(a *agent.Agent) {
	if a.Skills != nil {
		rows := each(a.Skills.List, func(s agent.Skill) []string {
			return []string{diag.Printable(s.ID), t.paint(dim, clip(diag.Printable(s.Description), t.width-30))}
		})
		t.section(fmt.Sprintf("Skills (%d, served as text)", len(rows)), rows)
	}
	if a.Prompt == "" {
		return
	}
	const shown = 600
	text := []rune(a.Prompt)
	more := ""
	if len(text) > shown {
		more = fmt.Sprintf(" … (%d more; --json shows all)", len(text)-shown)
		text = text[:shown]
	}
	t.printf("\n%s\n%s\n", t.paint(bold, fmt.Sprintf("System prompt (%d characters)", len([]rune(a.Prompt)))),
		t.paint(dim, wrap(diag.Printable(strings.Join(strings.Fields(string(text)), " "))+more, "  ", t.width)))
}

// clip returns s unchanged if it has at most width characters. A longer string is shortened to width characters, with
// "…" at the end. If width is less than 12, a longer string becomes "".
func clip(s string, width int) string {
	r := []rune(s)
	switch {
	case len(r) <= width:
		return s
	case width < 12:
		return ""
	}
	return string(r[:width-1]) + "…"
}
