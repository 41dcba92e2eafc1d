package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/manifest"
)

func newInspect(t *terminal) *cobra.Command {
	var dialect string
	var dev development
	cmd := &cobra.Command{
		Use:     "inspect PATH",
		GroupID: groupReview,
		Short:   "Show what an agent is and may do",
		Long: "Show what an agent is and may do, before you approve it: side effects, hosts, files, secrets,\n" +
			"programs and limits at a glance, then every tool, then the risks. Nothing is started.",
		Example: "  ambit inspect agents/default.json\n  ambit inspect agents/examples/mcp-tool --json | jq .hosts",
		Args:    exactly(1, "one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.announce(egress.Switches{LoopbackHTTP: dev.loopbackHTTP})
			m, err := t.loadFor(dev, args[0], dialect)
			if err != nil {
				return err
			}
			guardrails, err := t.effectiveGuardrails(m.Agent())
			if err != nil {
				return err
			}
			needs, err := t.needs(cmd.Context(), m)
			if err != nil {
				return err
			}
			return t.show(t.inspection(m, needs, guardrails), func() {
				t.inspect(m, needs, guardrails)
				t.showNeeds(needs)
			})
		},
	}
	dev.manifestFlag(cmd.Flags())
	dialectFlag(cmd, &dialect)
	return cmd
}

// inspected is the document of inspect.
type inspected struct {
	ID            string                `json:"id"`
	Called        string                `json:"called"`
	Dialect       agent.Dialect         `json:"dialect"`
	Kind          agent.Kind            `json:"kind"`
	Name          string                `json:"name"`
	Description   string                `json:"description"`
	Prompt        string                `json:"prompt"`
	Version       string                `json:"version"`
	Digest        string                `json:"digest"`
	SideEffects   []agent.SideEffect    `json:"side_effects"`
	Tools         []toolReport          `json:"tools"`
	Hosts         []string              `json:"hosts"`
	AnyHost       string                `json:"any_host"`
	Paths         []string              `json:"paths"`
	Secrets       []string              `json:"secrets"`
	SecretDetails []secretReport        `json:"secret_details"`
	Programs      []programReport       `json:"programs"`
	Settings      []string              `json:"settings"`
	Agents        []string              `json:"agents"`
	Requirements  []agent.Requirement   `json:"requirements"`
	Required      []needReport          `json:"required_servers"`
	Optional      []needReport          `json:"optional_servers"`
	Capabilities  agent.Capabilities    `json:"capabilities"`
	Resources     *agent.Resources      `json:"resources"`
	Settlement    *agent.Settlement     `json:"settlement"`
	Guardrails    agent.Guardrails      `json:"guardrails"`
	Effective     effective             `json:"effective_guardrails"`
	Delivery      agent.Delivery        `json:"delivery"`
	Skills        *agent.Skills         `json:"skills"`
	Watch         []string              `json:"watch"`
	Warnings      []manifest.Diagnostic `json:"warnings"`
}

// effective are the guardrails of an agent here: its own, and those that the operator sets
// for every agent.
type effective struct {
	MaxLength    int64        `json:"max_length"`
	DenyPatterns []string     `json:"deny_patterns"`
	DenyDefaults bool         `json:"deny_defaults"`
	PII          []string     `json:"pii_redaction"`
	OnLeak       agent.OnLeak `json:"on_leak"`
	Schemas      int          `json:"output_schemas"`
}

func (t *terminal) effectiveGuardrails(a *agent.Agent) (effective, error) {
	operator, err := operatorGuardrails(t.home)
	if err != nil {
		return effective{}, err
	}
	r := guard.Merge(operator, a.Guardrails)
	return effective{
		r.MaxLength, append([]string{}, r.Input.Deny...), r.Input.DenyDefaults, append([]string{}, r.Input.PII...), r.OnLeak, len(r.Schemas),
	}, nil
}

type secretReport struct {
	Name     string   `json:"name"`
	For      string   `json:"for"`
	Hosts    []string `json:"hosts"`
	Required bool     `json:"required"`
}

type programReport struct {
	For    string   `json:"for"`
	Argv   []string `json:"argv"`
	Digest string   `json:"digest"`
}

func (t *terminal) inspection(m *manifest.Manifest, needs needed, guardrails effective) inspected {
	a, r := needs.agent, needs.reach
	out := inspected{
		ID: a.ID, Called: registered(t.home, m), Dialect: a.Dialect, Kind: a.Kind, Name: a.Name,
		Description: a.Description, Prompt: a.Prompt, Version: a.Version, Digest: a.Digest,
		SideEffects: append([]agent.SideEffect{}, r.SideEffects...), Tools: toolReports(a), Hosts: []string{}, AnyHost: r.AnyHostReason,
		Paths: append([]string{}, r.Paths...), Secrets: []string{}, SecretDetails: []secretReport{}, Programs: []programReport{},
		Settings: append([]string{}, settings(a)...), Agents: append([]string{}, r.Agents...), Requirements: append([]agent.Requirement{}, a.Requirements...),
		Required: needs.required, Optional: needs.optional, Capabilities: a.Capabilities, Resources: a.Resources, Settlement: a.Settlement, Guardrails: a.Guardrails, Effective: guardrails,
		Delivery: a.Delivery, Skills: a.Skills, Watch: append([]string{}, needs.watch...),
		Warnings: append([]manifest.Diagnostic{}, m.Diagnostics...),
	}
	for _, h := range r.Hosts {
		out.Hosts = append(out.Hosts, h.Name)
	}
	for _, s := range r.Secrets {
		out.Secrets = append(out.Secrets, s.Name)
		out.SecretDetails = append(out.SecretDetails, secretReport{s.Name, s.For, append([]string{}, s.Hosts...), s.Required})
	}
	for _, p := range r.Programs {
		out.Programs = append(out.Programs, programReport{p.For, p.Argv, p.Digest})
	}
	return out
}

func (t *terminal) inspect(m *manifest.Manifest, needs needed, guardrails effective) {
	a := needs.agent
	t.printf("%s  %s\n", t.paint(bold, diag.Printable(a.Name)), t.paint(dim, diag.Printable(a.ID)))
	if a.Description != "" {
		t.printf("%s\n", wrap(diag.Printable(a.Description), "  ", t.width))
	}
	t.printf("\n")
	facts := [][]string{
		{t.paint(dim, "called"), diag.Printable(registered(t.home, m)) + "  " + t.paint(dim, "by verbs, keys and addresses")},
		{t.paint(dim, "dialect"), string(a.Dialect) + ", " + string(a.Kind)},
		{t.paint(dim, "digest"), a.Digest},
	}
	if a.Version != "" {
		facts = append(facts, []string{t.paint(dim, "version"), diag.Printable(a.Version)})
	}
	t.table("  ", t.hang(facts))
	t.section("What it may do", t.mayDo(a, needs.reach))
	t.section("Limits", t.limits(a, guardrails))
	t.toolList(a)
	t.prompt(a)
	t.lookTwice(needs.watch)
	if len(m.Diagnostics) > 0 {
		t.printf("\n%s\n", t.paint(bold, "Warnings"))
		for _, d := range m.Diagnostics {
			line := fmt.Sprintf("%s %s %s", t.paint(yellow, fmt.Sprintf("%d:%d", d.Line, d.Column)), d.Message, t.paint(dim, "["+d.Code+"]"))
			if t.cut {
				line = strings.TrimLeft(wrap(line, "    ", t.width), " ")
			}
			t.printf("  %s\n", line)
		}
	}
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
	t.table("  ", t.hang(rows))
}

// hang wraps the last column of rows that are wider than the terminal. Without a terminal, a
// row stays one line.
func (t *terminal) hang(rows [][]string) [][]string {
	if !t.cut || len(rows) == 0 {
		return rows
	}
	last := len(rows[0]) - 1
	space := t.width - len("  ")
	for column := range last {
		widest := 0
		for _, r := range rows {
			widest = max(widest, visible(r[column]))
		}
		space -= widest + len("  ")
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

// fact makes rows of one label and several values.
func (t *terminal) fact(rows [][]string, label string, values ...string) [][]string {
	for i, v := range values {
		if i > 0 {
			label = ""
		}
		rows = append(rows, []string{t.paint(dim, label), diag.Printable(v)})
	}
	return rows
}

func (t *terminal) mayDo(a *agent.Agent, r agent.Reach) [][]string {
	var rows [][]string
	rows = t.fact(rows, "side effects", effects(a, r))
	var hosts []string
	for _, h := range r.Hosts {
		hosts = append(hosts, h.Name+"  ("+strings.Join(h.By, ", ")+")")
	}
	if r.AnyHost {
		hosts = append(hosts, "any: "+r.AnyHostReason)
	}
	rows = t.fact(rows, "hosts", daemon.OrNone(hosts)...)
	rows = t.fact(rows, "files", daemon.OrTheirs(a, r.Paths)...)
	var secrets []string
	for _, s := range r.Secrets {
		text := s.Name + "  → " + s.For
		if len(s.Hosts) > 0 {
			text += ", only to " + strings.Join(s.Hosts, ", ")
		}
		if !s.Required {
			text += " (optional)"
		}
		secrets = append(secrets, text)
	}
	rows = t.fact(rows, "secrets", daemon.OrTheirs(a, secrets)...)
	var programs []string
	for _, p := range r.Programs {
		text := agent.CommandLine(p.Argv) + "  (" + p.For + ")"
		if p.Digest != "" {
			text += "  " + shortDigest(p.Digest)
		}
		programs = append(programs, text)
	}
	rows = t.fact(rows, "programs", daemon.OrTheirs(a, programs)...)
	rows = t.fact(rows, "settings", settings(a)...)
	rows = t.fact(rows, "agents", r.Agents...)
	for _, q := range a.Requirements {
		need := "needs"
		if q.Optional {
			need = "can use"
		}
		rows = t.fact(rows, need, strings.TrimSpace(q.Server+" "+q.Version)+"  scopes: "+strings.Join(daemon.OrNone(q.Scopes), ", "))
	}
	capabilities := slices.Clone(a.Capabilities.Required)
	for _, c := range a.Capabilities.Optional {
		capabilities = append(capabilities, c+" (optional)")
	}
	rows = t.fact(rows, "capabilities", capabilities...)
	return t.fact(rows, "reached by", delivery(a.Delivery)...)
}

// settings returns the environment and headers of servers: they can change what a program
// does as much as its arguments.
func settings(a *agent.Agent) []string {
	var out []string
	for _, s := range a.Servers {
		for _, set := range slices.Concat(s.Env, s.Headers) {
			out = append(out, set.Name+"="+set.Value+"  (server "+s.Alias+")")
		}
	}
	return out
}

// delivery describes how clients reach the agent.
func delivery(d agent.Delivery) []string {
	var out []string
	for _, mode := range d.Modes {
		switch {
		case mode == "mcp.stdio" && d.Command != "":
			mode += ", " + agent.CommandLine(append([]string{d.Command}, d.Args...)) + " (ambit never runs this itself)"
		case mode == "mcp.remote":
			mode += ", auth " + cmp.Or(d.Auth, "as the daemon asks")
		}
		out = append(out, mode)
	}
	return out
}

func effects(a *agent.Agent, r agent.Reach) string {
	may, never := daemon.Effects(a, r)
	text := strings.Join(may, ", ")
	if len(never) > 0 {
		text += "  (never: " + strings.Join(never, ", ") + ")"
	}
	return text
}

func shortDigest(d string) string {
	if len(d) > 19 {
		return d[:19] + "…"
	}
	return d
}

func (t *terminal) limits(a *agent.Agent, guardrails effective) [][]string {
	var rows [][]string
	if res := a.Resources; res != nil {
		rows = t.fact(rows, "one run", fmt.Sprintf("%d ms, %d MiB memory, %d MiB disk", res.WallClock.Milliseconds(), res.MemoryMB, res.DiskMB))
		rows = t.fact(rows, "network", string(res.Network))
	}
	if s := a.Settlement; s != nil {
		budget := "no budget"
		if s.CreditsPerHour > 0 {
			budget = fmt.Sprintf("%d credits an hour", s.CreditsPerHour)
		}
		rows = t.fact(rows, "cost", budget+", priority "+string(s.Priority))
	}
	if guardrails.MaxLength > 0 {
		rows = t.fact(rows, "arguments", fmt.Sprintf("at most %d bytes", guardrails.MaxLength))
	}
	denied := guardrails.DenyPatterns
	if guardrails.DenyDefaults {
		denied = append(slices.Clone(denied), "the patterns that ship with ambit")
	}
	rows = t.fact(rows, "denied", denied...)
	if len(guardrails.PII) > 0 {
		rows = t.fact(rows, "redacted", strings.Join(guardrails.PII, ", "))
	}
	if guardrails.Schemas > 0 {
		rows = t.fact(rows, "results", "checked against a schema")
	}
	if p := a.Program; p != nil && p.Contract != agent.OneLine {
		rows = t.fact(rows, "sandbox", "runs only isolated, and reaches only the hosts above")
	}
	if len(rows) > 0 || a.Dialect == agent.FindAgent {
		scan := "results are always scanned for them"
		if guardrails.OnLeak == agent.LeakBlock {
			scan = "a result that contains one is withheld"
		}
		rows = t.fact(rows, "secrets", scan)
	}
	return rows
}

func (t *terminal) toolList(a *agent.Agent) {
	reports := toolReports(a)
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
		if len(r.Limits) > 0 { // never cut to the width
			rows = append(rows, []string{"", "", strings.Join(r.Limits, ", ")})
		}
	}
	title := "Tools (" + fmt.Sprint(len(reports))
	if blocked > 0 {
		title += fmt.Sprintf(", %d not callable", blocked)
	}
	t.section(title+")", rows)
}

// prompt prints the skills and the system prompt.
func (t *terminal) prompt(a *agent.Agent) {
	if a.Skills != nil {
		var rows [][]string
		for _, s := range a.Skills.List {
			rows = append(rows, []string{diag.Printable(s.ID), t.paint(dim, clip(diag.Printable(s.Description), t.width-30))})
		}
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

// clip cuts a text to a width; a very small width leaves nothing.
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
