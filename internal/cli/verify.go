package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/matrix"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/manifest"
)

func newVerify(t *terminal) *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:     "verify PATH",
		GroupID: groupInstall,
		Short:   "Prove that tool servers match a manifest",
		Long: "Prove that an agent's tool servers match its manifest: start them, compare what they advertise with what is\n" +
			"declared, and the packages with their digests. With a lock beside the manifest, whole definitions are\n" +
			"compared. Exits 1 and names every difference if there is one. For a GPARS agent, every required server must\n" +
			"be available exactly as locked; an optional one that is not is a warning. An agent without tool servers has\n" +
			"nothing to prove.",
		Example: "  ambit verify agents/default.json\n  ambit verify --offline agents/default.json",
		Args:    exactly(1, "one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := t.load(args[0], "")
			if err != nil {
				return err
			}
			if !onServers(m) {
				return t.verifyNothing(m, offline)
			}
			m = m.Remote()
			if offline && m.Dialect != agent.GPARS {
				return t.verifyOffline(m)
			}
			return t.verify(cmd.Context(), m, offline)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "check only the file; start nothing")
	return cmd
}

// verifyNothing reports on an agent without tool servers. ambit doctor checks whether its
// program can run here.
func (t *terminal) verifyNothing(m *manifest.Manifest, offline bool) error {
	return t.show(map[string]any{"ok": true, "offline": offline, "locked": false, "servers": []any{}, "note": nothingToProve(m)}, func() {
		t.printf("%s %s: the file is valid; %s\n", t.paint(green, "ok:"), diag.Printable(m.Agent().ID), nothingToProve(m))
		if m.Agent().Program != nil {
			t.hintf("whether its program can run here: ambit doctor")
		}
	})
}

func (t *terminal) verifyOffline(m *manifest.Manifest) error {
	a := m.Agent()
	return t.say(map[string]any{"ok": true, "offline": true, "servers": []any{}}, "%s %s: %s, %s; the file is valid, nothing was started\n", t.paint(green, "ok:"), diag.Printable(a.ID), count(len(a.Servers), "server"), count(len(a.Tools), "tool"))
}

// verify proves that each server is what was declared, required or locked. An optional
// server that is unavailable is a warning. Offline, required servers are only looked up.
func (t *terminal) verify(ctx context.Context, m *manifest.Manifest, offline bool) error {
	o, err := t.provingOptions(m)
	if err != nil {
		return err
	}
	r, err := resolveWith(ctx, m, host.ResolveOptions{Home: o.Home, Lock: o.Lock, Offline: offline})
	if err != nil {
		return err
	}
	o.Servers = r.Servers(o, egress.New(egress.Switches{}), false)
	proofs := knownHere(o.Servers)
	if !offline {
		servers := toolserver.Start(ctx, r.Agent(), o)
		defer servers.Close()
		proofs = servers.Proofs()
	}
	if err := interrupted(ctx, unproven); err != nil {
		return err
	}
	proofs = addHints(proofs, r.Agent(), o.Lock)
	reports := make([]provenServer, len(proofs))
	found := r.Found()
	needed := proofs
	if len(found) > 0 {
		needed = nil
	}
	for i, base := range proofReports(proofs) {
		reports[i].proofReport = base
		if len(found) == 0 {
			continue
		}
		f := &found[i]
		reports[i].Warnings = append(base.Warnings, f.Warnings...)
		reports[i].requirementReport = &requirementReport{
			f.Requirement.Optional, f.Requirement.Version, f.Version, f.From, f.From == registry.FromLock,
		}
		if !f.Requirement.Optional {
			needed = append(needed, proofs[i])
		}
	}
	end := verdict(needed)
	locked := o.Lock != nil && o.Lock.Agents[m.Agent().ID] != nil
	switch {
	case t.json:
		err = t.document(map[string]any{"ok": end == nil, "offline": offline, "locked": locked, "servers": reports})
	case m.Dialect == agent.GPARS:
		t.requirements(reports, proofs, end == nil, offline, locked)
	default:
		t.proofs(proofs, locked)
	}
	if err == nil {
		err = end
	}
	return err
}

// knownHere is what can be said of servers that are not started.
func knownHere(servers []toolserver.Spec) []toolserver.Proof {
	proofs := make([]toolserver.Proof, len(servers))
	for i, s := range servers {
		proofs[i] = toolserver.Proof{
			Alias: s.Alias, OK: true, Tools: s.Definitions,
			Package: toolserver.PackageDigest{Declared: s.Digest, Status: toolserver.Absent},
		}
		if missing, ok := errors.AsType[*toolserver.Unavailable](s.Problem); ok {
			proofs[i] = toolserver.Proof{Alias: s.Alias, Refusal: missing.Refusal, Lacking: missing.Lacking}
		}
	}
	return proofs
}

// unproven is what an interrupted proof comes down to.
const unproven = "nothing is proven"

// interrupted ends a verb that a signal came to before it had its answer; nil if
// none came. What servers say after that is no word on them.
func interrupted(ctx context.Context, state string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &failure{code: exitInterrupted, err: errors.New("interrupted; " + state)}
}

// provingOptions are those of verbs that prove servers. Where no bar shows how far
// they are, each package that is fetched is one line: that takes long.
func (t *terminal) provingOptions(m *manifest.Manifest) (toolserver.Options, error) {
	o, err := t.serverOptions(m)
	if err == nil && t.bar == nil {
		o.Progress = func(alias, step string) {
			if strings.HasPrefix(step, "downloading ") {
				t.serverLog(alias, step)
			}
		}
	}
	return o, err
}

// guided adds to the refusals of servers what their reader needs to go on: how the
// manifest differs from the lock, where a server was not started because of that, and
// what to do about one that was imported without its tools.
func addHints(proofs []toolserver.Proof, a *agent.Agent, lock *pack.Lock) []toolserver.Proof {
	for i := range proofs {
		p := &proofs[i]
		s := a.Server(p.Alias)
		if p.OK || s == nil {
			continue
		}
		r := *p.Refusal
		if locked := lock.Server(a.ID, p.Alias); locked != nil {
			declared, was := s.Digest, locked.Package.Digest
			if s.Transport == agent.StreamableHTTP {
				declared, was = s.Endpoint, locked.Package.Name
			}
			if declared != was {
				r.Message += fmt.Sprintf(": %s is declared, and %s is locked", declared, cmp.Or(was, "nothing"))
				r.Hint, r.Command = "restore the locked version, or, if the change is yours, lock the declared one", diag.Command{Verb: "lock"}
			}
		}
		if toolsUnknown(p) {
			verb := "lock"
			if ref, err := pack.Identify(*s); err == nil && (ref.Kind == pack.NPM || ref.Kind == pack.PyPI) && s.Version == importer.UnknownVersion {
				verb = "lock --update"
			}
			r.Hint = `paste these into "tools", check each side-effect class (the server chose them), then run`
			r.Command = diag.Command{Verb: verb}
		}
		p.Refusal = &r
	}
	return proofs
}

// toolsUnknown reports whether a server was imported without its tools.
func toolsUnknown(p *toolserver.Proof) bool {
	return slices.Equal(p.Missing, []string{importer.UnknownTool}) && len(p.Unexpected) > 0
}

// verdict is what proofs come down to: no if a server is not what it should be,
// and something missing if that is all that keeps them from being proven.
func verdict(proofs []toolserver.Proof) error {
	var end error
	for _, p := range proofs {
		switch {
		case p.OK:
		case !p.Lacking:
			return errNo
		default:
			end = &failure{code: exitMissing, err: p.Refusal, printed: true}
		}
	}
	return end
}

type proofReport struct {
	Alias         string                   `json:"alias"`
	OK            bool                     `json:"ok"`
	Error         string                   `json:"error"`
	Message       string                   `json:"message"`
	Missing       []string                 `json:"missing"`
	Unexpected    []string                 `json:"unexpected"`
	Changed       []pack.Difference        `json:"changed"`
	PackageDigest toolserver.PackageDigest `json:"package_digest"`
	Protocol      string                   `json:"protocol"`
	Contained     bool                     `json:"contained"`
	Warnings      []string                 `json:"warnings"`
}

// provenServer is a server in the document of verify.
type provenServer struct {
	proofReport
	*requirementReport
}

// requirementReport is what verify adds about a server that is required by its id.
type requirementReport struct {
	Optional bool   `json:"optional"`
	Asked    string `json:"asked"`
	Version  string `json:"version"`
	From     string `json:"from"`
	Locked   bool   `json:"locked"`
}

func proofReports(proofs []toolserver.Proof) []proofReport {
	reports := make([]proofReport, len(proofs))
	for i, p := range proofs {
		r := proofReport{
			Alias: p.Alias, OK: p.OK, Missing: append([]string{}, p.Missing...), Unexpected: append(append([]string{}, p.Unexpected...), p.Twice...),
			Changed: append([]pack.Difference{}, p.Changed...), PackageDigest: p.Package, Protocol: p.Protocol,
			Contained: p.Contained, Warnings: append([]string{}, p.Warnings...),
		}
		if p.Refusal != nil {
			r.Error, r.Message = string(p.Refusal.Code), p.Refusal.Message
		}
		reports[i] = r
	}
	return reports
}

func (t *terminal) proofs(proofs []toolserver.Proof, locked bool) {
	bad := 0
	for _, p := range proofs {
		mark, verdict := t.paint(green, "✓"), count(len(p.Tools), "tool")+" as declared, package "+string(p.Package.Status)
		if !p.OK {
			bad++
			mark, verdict = t.paint(red, "✗"), string(p.Refusal.Code)
		}
		t.printf("%s %s  %s\n", mark, t.paint(bold, diag.Printable(p.Alias)), t.paint(dim, verdict))
		t.whyNot(p)
		for _, w := range p.Warnings {
			t.printf("    %s %s\n", t.paint(yellow, "!"), diag.Printable(w))
		}
	}
	switch {
	case bad > 0:
		t.printf("%s\n", t.paint(boldRed, fmt.Sprintf("%d of %s refused", bad, count(len(proofs), "server"))))
	case locked:
		t.printf("%s\n", t.paint(green, fmt.Sprintf("every server is what the manifest and the lock say (%d)", len(proofs))))
	default:
		t.printf("%s\n", t.paint(green, fmt.Sprintf("every server is what the manifest says (%d)", len(proofs))))
	}
}

// requirements prints what became of the servers that are required by their ids.
func (t *terminal) requirements(reports []provenServer, proofs []toolserver.Proof, ok, offline, locked bool) {
	for i := range reports {
		t.requirement(&reports[i], proofs[i], offline)
	}
	switch {
	case !ok:
		t.printf("%s\n", t.paint(boldRed, "a required server is unavailable or does not match"))
	case offline:
		t.printf("%s\n", t.paint(green, "every required server is known here; nothing was started"))
	case locked:
		t.printf("%s\n", t.paint(green, "every required server is what the lock says"))
	default:
		t.printf("%s\n", t.paint(green, "every required server is proven"))
	}
}

func (t *terminal) requirement(r *provenServer, p toolserver.Proof, offline bool) {
	mark, verdict := t.paint(green, "✓"), r.Version+" from the "+r.From
	switch {
	case !p.OK && r.Optional:
		mark, verdict = t.paint(yellow, "!"), "optional: "+string(p.Refusal.Code)
	case !p.OK:
		mark, verdict = t.paint(red, "✗"), string(p.Refusal.Code)
	case !offline:
		verdict += ", " + count(len(p.Tools), "tool") + ", package " + string(p.Package.Status)
	}
	alias, verdict := t.paint(bold, diag.Printable(r.Alias)), t.paint(dim, diag.Printable(verdict))
	t.printf("%s %s %s  %s\n", mark, alias, diag.Printable(r.Asked), verdict)
	t.whyNot(p)
	for _, w := range r.Warnings {
		t.printf("    %s %s\n", t.paint(yellow, "!"), diag.Printable(w))
	}
	if p.OK && !r.Locked {
		t.printf("    %s it is not locked: what it is may change (ambit lock)\n", t.paint(yellow, "!"))
	}
}

// whyNot shows every way in which a server is not what it should be.
func (t *terminal) whyNot(p toolserver.Proof) {
	for _, name := range p.Missing {
		note := ""
		if now := p.Renamed[name]; now != "" {
			note = "; was it renamed to " + diag.Quote(now) + "?"
		}
		t.printf("    %s declared, but not advertised: %s%s\n", t.paint(red, "-"), diag.Quote(name), note)
	}
	for _, name := range p.Unexpected {
		t.printf("    %s advertised, but not declared: %s\n", t.paint(red, "+"), diag.Quote(name))
	}
	for _, name := range p.Twice {
		t.printf("    %s advertised more than once: %s\n", t.paint(red, "+"), diag.Quote(name))
	}
	t.differences("    ", p.Changed)
	if !p.OK && len(p.Missing)+len(p.Unexpected)+len(p.Twice)+len(p.Changed) == 0 {
		t.printf("    %s\n", strings.TrimLeft(wrap(diag.Printable(p.Refusal.Message), "    ", t.width), " "))
	}
	if !p.OK && p.Refusal.Hint != "" {
		t.printf("    %s %s\n", t.paint(dim, "hint:"), diag.Printable(p.Refusal.HintFor(t.lastRead)))
	}
	if toolsUnknown(&p) {
		t.toolEntries(p)
	}
}

// toolEntries shows what to write into a manifest for the tools of a server. Their
// classes are what it says of itself, so a person has to look at each.
func (t *terminal) toolEntries(p toolserver.Proof) {
	tools := registry.Tools(p.Alias, p.Tools, nil)
	entries := make([]string, len(tools))
	for i, tool := range tools {
		entry, _ := json.Marshal(matrix.ToolEntry{Name: tool.Name, SideEffectClass: string(tool.SideEffect)}) // texts, which have a form in JSON
		entries[i] = "      " + escapeJSON(string(entry))
	}
	t.printf("%s\n", strings.Join(entries, ",\n"))
}

// differences shows what is not as it was locked.
func (t *terminal) differences(indent string, list []pack.Difference) {
	for _, d := range list {
		what := "server " + diag.Quote(d.Server)
		if d.Tool != "" {
			what = diag.Quote(d.Tool)
		}
		if d.What != pack.Changed {
			t.printf("%s%s %s was %s\n", indent, t.paint(red, "~"), what, d.What)
		}
		for _, c := range d.Changes {
			was, is := c.Excerpt()
			t.printf("%s%s %s of %s changed\n", indent, t.paint(red, "~"), diag.Printable(c.Field), what)
			t.printf("%s  %s %s\n", indent, t.paint(red, "was"), atLength(diag.Printable(was)))
			t.printf("%s  %s %s\n", indent, t.paint(green, "is "), atLength(diag.Printable(is)))
		}
	}
}

// mostShown bounds the text that is shown of a difference. The length of the rest is
// printed, because a person is about to accept it.
const mostShown = 4000

func atLength(text string) string {
	r := []rune(text)
	if len(r) <= mostShown {
		return text
	}
	return fmt.Sprintf("%s… (%d more characters; --json has them all)", string(r[:mostShown]), len(r)-mostShown)
}
