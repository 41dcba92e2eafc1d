package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/lock"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/matrix"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

func newVerify(t *terminal) *cobra.Command {
	var offline bool
	var d development
	cmd := verb("verify PATH", exactly(1, "one manifest"), func(ctx context.Context, args []string) error {
		m, err := t.loadWith(args[0], manifest.Options{NoTools: !offline})
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
		return t.verify(ctx, m, offline, d.unconfined)
	})
	cmd.Flags().BoolVar(&offline, "offline", false, "check only the file; start nothing")
	d.unconfinedFlag(cmd, "server")
	return cmd
}

// verifyNothing prints the result for an agent without tool servers. It does not check the agent's program, because
// "ambit doctor" does that.
func (t *terminal) verifyNothing(m *manifest.Manifest, offline bool) error {
	note := nothingToProve(m)
	doc := map[string]any{"ok": true, "offline": offline, "locked": false, "servers": []any{}, "note": note}
	return t.show(doc, func() {
		t.printf("%s %s: the file is valid; %s\n", t.paint(green, "ok:"), diag.Printable(m.Agent().ID), note)
		if m.Agent().Program != nil {
			t.hintf("to check whether the program can run here, run: ambit doctor")
		}
	})
}

func (t *terminal) verifyOffline(m *manifest.Manifest) error {
	a := m.Agent()
	return t.say(map[string]any{"ok": true, "offline": true, "servers": []any{}},
		"%s %s: %s, %s; the file is valid, nothing was started\n",
		t.paint(green, "ok:"), diag.Printable(a.ID), count(len(a.Servers), "server"), count(len(a.Tools), "tool"))
}

// verify proves that every server matches the manifest and the lock file. An optional server that is unavailable
// causes only a warning. Offline, verify finds the servers but does not start them.
func (t *terminal) verify(ctx context.Context, m *manifest.Manifest, offline bool, unconfined []string) error {
	p, err := t.prove(ctx, m, "", offline, unconfined)
	if err != nil {
		return err
	}
	end := verdict(p.needed)
	doc := map[string]any{"ok": end == nil, "offline": offline, "locked": p.locked, "servers": p.reports}
	err = t.show(doc, func() {
		if m.Dialect == agent.GPARS {
			t.printRequirements(p.reports, p.all, end == nil, offline, p.locked)
		} else {
			t.printProofs(p.all, p.locked)
		}
	})
	return cmp.Or(err, end)
}

// proven contains the proofs of an agent's servers.
type proven struct {
	all     []hintedProof
	needed  []toolserver.Proof // the proofs of servers that are not optional
	reports []provenServer     // reports[i] describes all[i]
	locked  bool               // whether the servers were also compared with the lock file
}

// optional reports whether the agent works without the server all[i].
func (p *proven) optional(i int) bool {
	return p.reports[i].requirementReport != nil && p.reports[i].Optional
}

// prove fetches, starts and proves every server of an agent, and stops the servers again. The servers get the
// credentials and rights of the agent with the given name. An empty name means the name of the manifest's file.
func (t *terminal) prove(
	ctx context.Context, m *manifest.Manifest, name string, offline bool, unconfined []string,
) (p proven, err error) {
	o, err := t.provingOptions(m, name != "") // if a name is given, ambit install is the caller
	if err != nil {
		return p, err
	}
	if name = cmp.Or(name, registeredName(o.Home, m)); name != registeredName(o.Home, m) {
		o.Lookup = (&credential.Source{Agent: name, Vault: credential.Open(o.Home)}).Lookup(m.Agent())
	}
	r, err := resolveWith(ctx, m, host.ResolveOptions{Home: o.Home, Lock: o.Lock, Offline: offline})
	if err != nil {
		return p, err
	}
	if err := t.confine(ctx, &o, m, name, r.Agent(), unconfined); err != nil {
		return p, err
	}
	o.Servers = r.Servers(o, egress.New(egress.Switches{}), false)
	proofs := offlineProofs(o.Servers)
	if !offline {
		servers := toolserver.Start(ctx, r.Agent(), o)
		defer servers.Close()
		proofs = servers.Proofs()
	}
	if err := interrupted(ctx, unproven); err != nil {
		return p, err
	}
	p.all = t.addHints(proofs, r.Agent(), o.Lock)
	p.reports = make([]provenServer, len(p.all))
	found := r.Found()
	if len(found) == 0 {
		p.needed = proofs
	}
	for i, base := range proofReports(p.all) {
		p.reports[i].proofReport = base
		if len(found) == 0 {
			continue
		}
		f := &found[i]
		p.reports[i].Warnings = append(base.Warnings, f.Warnings...)
		p.reports[i].requirementReport = &requirementReport{
			f.Requirement.Optional, f.Requirement.Version, f.Version, f.From, f.From == registry.FromLock,
		}
		if !f.Requirement.Optional {
			p.needed = append(p.needed, proofs[i])
		}
	}
	p.locked = o.Lock != nil && o.Lock.Agents[m.Agent().ID] != nil
	return p, nil
}

// offlineProofs returns the proofs for servers that are not started. A server passes if ambit knows how to start it.
func offlineProofs(servers []toolserver.Spec) []toolserver.Proof {
	return each(servers, func(s toolserver.Spec) toolserver.Proof {
		if missing, ok := errors.AsType[*toolserver.Unavailable](s.Problem); ok {
			return toolserver.Proof{Alias: s.Alias, Refusal: missing.Refusal, Lacking: missing.Lacking}
		}
		return toolserver.Proof{
			Alias: s.Alias, OK: true, Tools: s.Definitions,
			Package: toolserver.PackageDigest{Declared: s.Digest, Status: toolserver.Absent},
		}
	})
}

// unproven is the message for an interrupted verification.
const unproven = "no server was verified"

// interrupted returns an error if a signal cancelled ctx. In that case, the results from the servers are not reliable.
func interrupted(ctx context.Context, state string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &failure{code: exitInterrupted, err: errors.New("interrupted; " + state)}
}

// provingOptions returns the options for verifying servers. Without a progress line, every download is logged. If quiet
// is set, a terminal shows each message only once. It does not show the servers' output, because the refusal of a
// server contains the end of its output.
func (t *terminal) provingOptions(m *manifest.Manifest, quiet bool) (toolserver.Options, error) {
	o, err := t.serverOptions(m)
	if quiet && t.interactive() {
		var said sync.Map // a server may start more than once, and log the same messages again
		o.Log = func(alias, line string) {
			if _, again := said.LoadOrStore(alias+"\x00"+line, true); !again {
				t.serverLog(alias, line)
			}
		}
		o.Output = func(string, string) {}
	}
	if err == nil && t.bar == nil {
		o.Progress = func(alias, step string) {
			if strings.HasPrefix(step, "downloading ") {
				t.serverLog(alias, step)
			}
		}
	}
	return o, err
}

// hintedProof is a proof with the tools that the manifest could declare.
type hintedProof struct {
	toolserver.Proof
	proposals []registry.Proposal
}

// addHints improves the messages and hints of refused servers. If the manifest does not match the lock file, the
// message describes the difference. If the manifest lacks tools of a server that was never locked, the hint explains how
// to add them.
func (t *terminal) addHints(proofs []toolserver.Proof, a *agent.Agent, locks *pack.Lock) []hintedProof {
	out := each(proofs, func(p toolserver.Proof) hintedProof { return hintedProof{Proof: p} })
	known, err := catalog.Open(t.home)
	if err != nil {
		known = &catalog.Catalog{} // without a catalogue, the proposals come from the server
	}
	for i := range out {
		p := &out[i]
		s := a.Server(p.Alias)
		if p.OK || s == nil {
			continue
		}
		r := *p.Refusal
		locked := locks.Server(a.ID, p.Alias)
		if locked != nil {
			declared, was := s.Digest, locked.Package.Digest
			if s.Transport == agent.StreamableHTTP {
				declared, was = s.Endpoint, locked.Package.Name
			}
			if declared != was {
				r.Message += fmt.Sprintf(": declared %s, locked %s", declared, cmp.Or(was, "nothing"))
				r.Hint = "restore the locked version; or, if you made the change, lock the declared version"
				r.Command = diag.Command{Verb: "lock"}
			}
		} else if p.proposals = lock.Proposals(s, &p.Proof, known); len(p.proposals) > 0 {
			r.Hint = "to write these tools into the manifest, with side-effect classes for you to check, run"
			r.Command = diag.Command{Verb: "lock --write-tools"}
		}
		p.Refusal = &r
	}
	return out
}

// verdict returns nil if every server matches its declaration, and errNo if a server does not match. If the only
// problem is that this machine lacks something, the error has the exit code exitMissing.
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
	// Proposals are manifest entries for the unexpected tools of a server that was never locked.
	Proposals []registry.Proposal `json:"proposals"`
}

// provenServer is the JSON document for a server in the output of "ambit verify".
type provenServer struct {
	proofReport
	*requirementReport
}

// requirementReport contains additional fields for a server that the agent requires by id.
type requirementReport struct {
	Optional bool   `json:"optional"`
	Asked    string `json:"asked"`
	Version  string `json:"version"`
	From     string `json:"from"`
	Locked   bool   `json:"locked"`
}

func proofReports(proofs []hintedProof) []proofReport {
	return each(proofs, func(p hintedProof) proofReport {
		r := proofReport{
			Alias: p.Alias, OK: p.OK, PackageDigest: p.Package, Protocol: p.Protocol, Contained: p.Contained,
			Missing: append([]string{}, p.Missing...), Warnings: append([]string{}, p.Warnings...),
			Unexpected: append(append([]string{}, p.Unexpected...), p.Twice...),
			Changed:    append([]pack.Difference{}, p.Changed...),
			Proposals:  append([]registry.Proposal{}, p.proposals...),
		}
		if p.Refusal != nil {
			r.Error, r.Message = string(p.Refusal.Code), p.Refusal.Message
		}
		return r
	})
}

// printProofs prints the results for the servers of a manifest. If the servers were also compared with a lock file,
// locked is true.
func (t *terminal) printProofs(proofs []hintedProof, locked bool) {
	bad := 0
	for _, p := range proofs {
		bad += btoi(!p.OK)
		t.printProof(p, "", count(len(p.Tools), "tool")+" as declared, package "+string(p.Package.Status), false, p.Warnings)
	}
	servers := count(len(proofs), "server")
	style, text := green, fmt.Sprintf("every server matches the manifest (%s)", servers)
	switch {
	case bad > 0:
		style, text = boldRed, fmt.Sprintf("%d of %s refused", bad, servers)
	case locked:
		text = fmt.Sprintf("every server matches the manifest and the lock file (%s)", servers)
	}
	t.printf("%s\n", t.paint(style, text))
}

// printRequirements prints the results for servers that the agent requires by id.
func (t *terminal) printRequirements(reports []provenServer, proofs []hintedProof, ok, offline, locked bool) {
	for i, r := range reports {
		p, verdict := proofs[i], r.Version+" from the "+r.From
		if !offline {
			verdict += ", " + count(len(p.Tools), "tool") + ", package " + string(p.Package.Status)
		}
		if p.OK && !r.Locked {
			r.Warnings = append(r.Warnings, "the server is not locked, so its package can change; run: ambit lock")
		}
		t.printProof(p, " "+r.Asked, verdict, r.Optional, r.Warnings)
	}
	style, text := green, "every required server was verified"
	switch {
	case !ok:
		style, text = boldRed, "a required server is unavailable or does not match"
	case offline:
		text = "every required server was found; nothing was started"
	case locked:
		text = "every required server matches the lock file"
	}
	t.printf("%s\n", t.paint(style, text))
}

// printProof prints the result for one server. If the server does not match its declaration, printProof prints the code
// of the refusal instead of the given verdict.
func (t *terminal) printProof(p hintedProof, asked, verdict string, optional bool, warnings []string) {
	mark := t.paint(green, "✓")
	switch {
	case !p.OK && optional:
		mark, verdict = t.paint(yellow, "!"), "optional: "+string(p.Refusal.Code)
	case !p.OK:
		mark, verdict = t.paint(red, "✗"), string(p.Refusal.Code)
	}
	alias := t.paint(bold, diag.Printable(p.Alias)) + diag.Printable(asked)
	t.printf("%s %s  %s\n", mark, alias, t.paint(dim, diag.Printable(verdict)))
	t.whyNot(p)
	if p.OK && p.Package.Uncovered != "" {
		warnings = append(slices.Clone(warnings), p.Package.Uncovered)
	}
	for _, w := range warnings {
		t.printf("    %s %s\n", t.paint(yellow, "!"), diag.Printable(w))
	}
}

// whyNot prints the differences between a server and its declaration. It also prints the hint of the refusal.
func (t *terminal) whyNot(p hintedProof) {
	list := func(mark, what string, names []string) {
		for _, name := range names {
			what := what + ": " + diag.Quote(name)
			if now := p.Renamed[name]; now != "" && mark == "-" {
				what += "; was it renamed to " + diag.Quote(now) + "?"
			}
			t.printf("    %s %s\n", t.paint(red, mark), what)
		}
	}
	list("-", "declared, but not advertised", p.Missing)
	list("+", "advertised, but not declared", p.Unexpected)
	list("+", "advertised more than once", p.Twice)
	t.printDifferences("    ", p.Changed)
	if !p.OK && len(p.Missing)+len(p.Unexpected)+len(p.Twice)+len(p.Changed) == 0 {
		t.printf("    %s\n", strings.TrimLeft(wrap(diag.Printable(p.Refusal.Message), "    ", t.width), " "))
	}
	if !p.OK && p.Refusal.Hint != "" {
		t.printf("    %s %s\n", t.paint(dim, "hint:"), diag.Printable(p.Refusal.HintFor(t.lastRead)))
	}
	t.toolEntries(p.proposals)
}

// toolEntries prints manifest entries for the tools of a server. The user must check the side-effect classes.
func (t *terminal) toolEntries(proposals []registry.Proposal) {
	entries := each(proposals, func(p registry.Proposal) string {
		// A struct of strings can always be encoded.
		entry, _ := json.Marshal(matrix.ToolEntry{Name: p.Name, SideEffectClass: string(p.Class)})
		return "      " + escapeJSON(string(entry))
	})
	if len(entries) > 0 {
		t.printf("%s\n", strings.Join(entries, ",\n"))
	}
}

// printDifferences prints the differences between servers and the lock file.
func (t *terminal) printDifferences(indent string, list []pack.Difference) {
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

// mostShown is the number of characters that ambit shows of a changed text. If the text is longer, the output says how
// many characters are hidden, so that a user who accepts the change knows that a part was not shown.
const mostShown = 4000

func atLength(text string) string {
	r := []rune(text)
	if len(r) <= mostShown {
		return text
	}
	return fmt.Sprintf("%s… (%d more characters; --json shows all of them)", string(r[:mostShown]), len(r)-mostShown)
}
