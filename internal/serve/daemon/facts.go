package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
	"github.com/ambit-run/ambit/internal/serve/console"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

const unconfined = "tool servers are not confined on this system, " +
	"so they can use all your files, the network and every program"

func hasLocalServer(a *agent.Agent) bool {
	return slices.ContainsFunc(a.Servers, func(s agent.Server) bool { return s.Transport == agent.Stdio })
}

// ServerAccess is what a tool server can use on this machine.
type ServerAccess struct {
	Alias string `json:"alias"`
	// Confined reports whether a sandbox enforces the access. An unconfined server can use everything that the user who
	// runs it can use.
	Confined bool         `json:"confined"`
	Access   agent.Access `json:"access"`
	// Proposed lists the rights that the manifest proposes and that are not in force.
	Proposed agent.Access `json:"proposed"`
	// Never contains the kinds of right that a confined server lacks entirely. The possible kinds are write, connect
	// and execute.
	Never []agent.RightKind `json:"never"`
	// Missing lists the paths in Access that do not exist. At these paths, the server sees its own files, which ambit
	// keeps in the folder Private.
	Missing []string `json:"missing"`
	Private string   `json:"private_folder,omitempty"`
}

// AccessOf returns what a server can use. The parameter confines reports whether this system confines servers.
func AccessOf(s *agent.Server, access agent.Access, confines bool) ServerAccess {
	out := ServerAccess{
		Alias: s.Alias, Confined: confines && s.Transport == agent.Stdio, Access: append(agent.Access{}, access...),
		Proposed: agent.Access{}, Never: []agent.RightKind{}, Missing: []string{},
	}
	if absolute, err := toolserver.Absolute(access); err == nil && out.Confined {
		for _, r := range slices.Concat(absolute.Of(agent.CanRead), absolute.Of(agent.CanWrite)) {
			_, err := os.Stat(r.What)
			// ambit never replaces / or /tmp with a private folder.
			shared := slices.Contains([]string{"/", "/tmp"}, filepath.Dir(r.What))
			if errors.Is(err, fs.ErrNotExist) && !shared && !slices.Contains(out.Missing, r.What) {
				out.Missing = append(out.Missing, r.What)
			}
		}
	}
	for _, r := range s.Proposed {
		if !inForce(access, r) {
			out.Proposed = append(out.Proposed, r)
		}
	}
	for _, kind := range []agent.RightKind{agent.CanWrite, agent.CanConnect, agent.CanExecute} {
		if out.Confined && len(access.Of(kind)) == 0 {
			out.Never = append(out.Never, kind)
		}
	}
	return out
}

// inForce reports whether the access contains a proposed right. A manifest can write a path as ~/notes or a program as
// git, whereas the access contains absolute paths.
func inForce(access agent.Access, r agent.Right) bool {
	if access.Allows(r) {
		return true
	}
	if r.Kind == agent.CanExecute {
		path, err := exec.LookPath(r.What)
		r.What = path
		return err == nil && access.Allows(r)
	}
	absolute, err := toolserver.Absolute(agent.Access{r})
	return err == nil && access.Allows(absolute[0])
}

// Lines describes the access, one line for each right.
func (s ServerAccess) Lines(remote bool) []string {
	switch {
	case remote:
		return []string{"runs outside ambit, so ambit does not confine it"}
	case !s.Confined:
		return []string{unconfined}
	}
	var lines []string
	for _, r := range s.Access {
		r.What = placeText(r.What)
		lines = append(lines, "can "+r.String()+"  ("+r.Reason+")")
	}
	for _, r := range s.Proposed {
		r.What = placeText(r.What)
		lines = append(lines, "proposed, not in force: "+r.String())
	}
	for _, path := range s.Missing {
		if s.Private != "" {
			lines = append(lines, path+" does not exist, so the server keeps its own in "+s.Private+
				", which ambit uninstall deletes; to use the path above, create it first")
		}
	}
	never := map[agent.RightKind]string{
		agent.CanWrite:   "never writes outside its private folder",
		agent.CanConnect: "never connects",
		agent.CanExecute: "never starts another program",
	}
	for _, kind := range s.Never {
		lines = append(lines, never[kind])
	}
	return lines
}

// placeText describes a path in the access of a server. The path "." stands for the folder in which the client starts.
func placeText(path string) string {
	if path == "." {
		return "the folder in which your client starts"
	}
	return path
}

// Facts lists what an agent may do and access. An empty list of permissions is shown as "none", because a reviewer
// must also see which permissions the agent does not have.
func Facts(a *agent.Agent, r agent.Reach) (facts []console.Fact) {
	add := adder(&facts)
	may, not := Effects(a, r)
	effects := strings.Join(may, ", ")
	if len(not) > 0 {
		effects += "  (not callable: " + strings.Join(not, ", ") + ")"
	}
	add("Side effects", effects)
	var hosts, programs, secrets []string
	for _, h := range r.Hosts {
		hosts = append(hosts, h.Name+"  ("+strings.Join(h.By, ", ")+")")
	}
	if r.AnyHost {
		hosts = append(hosts, "any: "+r.AnyHostReason)
	}
	if !host.Confines && hasLocalServer(a) {
		hosts = append(hosts, "any: "+unconfined)
	}
	for _, s := range r.Secrets {
		text := s.Name + "  → " + s.For
		if len(s.Hosts) > 0 {
			text += ", only to " + strings.Join(s.Hosts, ", ")
		}
		if len(s.Scopes) > 0 {
			text += ", as a token with the scopes " + strings.Join(s.Scopes, ", ")
		}
		if !s.Required {
			text += " (optional)"
		}
		secrets = append(secrets, text)
	}
	for _, p := range r.Programs {
		text := agent.CommandLine(secretlike.Redact(p.Argv)) + "  (" + p.For + ")"
		if p.Digest != "" {
			text += "  " + ShortDigest(p.Digest)
		}
		programs = append(programs, text)
	}
	add("Hosts", OrNone(hosts)...)
	places := slices.Clone(r.Paths)
	for i := range places {
		places[i] = placeText(places[i])
	}
	add("Files", OrTheirs(a, places)...)
	add("Secrets", OrTheirs(a, secrets)...)
	add("Programs", OrTheirs(a, programs)...)
	add("Settings", Settings(a)...)
	add("Agents", r.Agents...)
	for _, q := range a.Requirements {
		need := "Needs"
		if q.Optional {
			need = "Can use"
		}
		scopes := strings.Join(OrNone(q.Scopes), ", ")
		add(need, strings.TrimSpace(q.Server+" "+q.Version)+"  scopes: "+scopes)
	}
	capabilities := slices.Clone(a.Capabilities.Required)
	for _, c := range a.Capabilities.Optional {
		capabilities = append(capabilities, c+" (optional)")
	}
	add("Capabilities", capabilities...)
	add("Reached by", delivery(a.Delivery)...)
	add("Data flow", dataFlow(a.Labels()))
	return facts
}

// AllLabels describes an agent that has all labels.
const AllLabels = "this agent can read private data, reads untrusted content, and can send data out, so " +
	"untrusted content could make it send private data out"

// dataFlow describes the labels of an agent.
func dataFlow(l agent.Labels) string {
	if l.All() {
		return AllLabels
	}
	var set []string
	for _, label := range []struct {
		set  bool
		text string
	}{{l.Private, "private data"}, {l.Untrusted, "untrusted content"}, {l.CanSend, "can send data out"}} {
		if label.set {
			set = append(set, label.text)
		}
	}
	return strings.Join(OrNone(set), ", ")
}

// adder returns a function that appends a fact to the list. The function ignores a fact without values.
func adder(facts *[]console.Fact) func(label string, values ...string) {
	return func(label string, values ...string) {
		if len(values) > 0 {
			*facts = append(*facts, console.Fact{Label: label, Values: values})
		}
	}
}

// GrantsFor returns the active grants for an agent. A grant for every agent is included only if the agent declares the
// grant's action.
func GrantsFor(a *agent.Agent, list []*grant.Grant) []*grant.Grant {
	asked := slices.Concat(a.Capabilities.Required, a.Capabilities.Optional)
	return slices.DeleteFunc(slices.Clone(list), func(g *grant.Grant) bool {
		applies := g.Scope == a.ID || g.Scope == "" && slices.Contains(asked, g.Action)
		return !applies || g.State(time.Now()) != grant.Active
	})
}

// Granted lists who may use an agent's actions. The argument is a result of [GrantsFor].
func Granted(list []*grant.Grant) (facts []console.Fact) {
	var values []string
	for _, g := range list {
		text := g.Action + " to " + g.Subject
		if g.Scope == "" {
			text += ", for every agent"
		}
		if !g.Expires.IsZero() {
			text += ", until " + g.Expires.UTC().Format(time.RFC3339)
		}
		values = append(values, text)
	}
	adder(&facts)("Granted", values...)
	return facts
}

// Limits lists the resources that one run of a program may use, and the program's budget.
func Limits(a *agent.Agent) (facts []console.Fact) {
	add := adder(&facts)
	if res := a.Resources; res != nil {
		add("One run", fmt.Sprintf("%d ms, %d MiB memory, %d MiB disk",
			res.WallClock.Milliseconds(), res.MemoryMB, res.DiskMB))
		add("Network", string(res.Network))
	}
	if p := a.Program; p != nil && p.Isolation != "" {
		add("Isolation", string(p.Isolation)+" or stronger; otherwise the program does not run")
	}
	if s := a.Settlement; s != nil {
		budget := "no budget"
		if s.CreditsPerHour > 0 {
			budget = fmt.Sprintf("%d credits an hour", s.CreditsPerHour)
		}
		add("Cost", budget+", priority "+string(s.Priority))
	}
	return facts
}

// ShortDigest shortens a digest for display.
func ShortDigest(d string) string {
	if len(d) > 19 {
		return d[:19] + "…"
	}
	return d
}

// Settings lists the environment variables and headers that the manifest sets for servers. They can change the behavior
// of a server as much as its arguments can. Literal credentials are redacted: validation rejects them, but a report is
// often shared.
func Settings(a *agent.Agent) []string {
	var out []string
	for _, s := range a.Servers {
		for _, set := range slices.Concat(s.Env, s.Headers) {
			out = append(out, set.Name+"="+secretlike.RedactSetting(set.Name, set.Value)+"  (server "+s.Alias+")")
		}
	}
	return out
}

func delivery(d agent.Delivery) []string {
	var out []string
	for _, mode := range d.Modes {
		switch {
		case mode == "mcp.stdio" && d.Command != "":
			argv := secretlike.Redact(append([]string{d.Command}, d.Args...))
			mode += ", " + agent.CommandLine(argv) + " (ambit never runs this itself)"
		case mode == "mcp.remote":
			mode += ", auth " + cmp.Or(d.Auth, "as the daemon requires")
		}
		out = append(out, mode)
	}
	return out
}

// Effects returns the side effects that the agent's tools may have, and the side effects that the manifest forbids.
func Effects(a *agent.Agent, r agent.Reach) (may, not []string) {
	for _, class := range agent.SideEffects {
		switch {
		case slices.Contains(r.SideEffects, class):
			may = append(may, string(class))
		case a.SideEffects.Restricted && !a.SideEffects.Allows(class):
			not = append(not, string(class))
		}
	}
	if len(a.Requirements) > 0 {
		may = append(may, "any side effect of a granted tool")
	}
	return OrNone(may), not
}

// OrNone returns the values, or "none" if there are none.
func OrNone(values []string) []string {
	if len(values) == 0 {
		return []string{"none"}
	}
	return values
}

// OrTheirs returns OrNone(values) if all required servers are resolved. If some are not resolved, the values are
// incomplete, and OrTheirs appends a note about the missing values.
func OrTheirs(a *agent.Agent, values []string) []string {
	if len(a.Servers) < len(a.Requirements) {
		return append(slices.Clone(values), "and whatever the required servers use")
	}
	return OrNone(values)
}

// Warnings lists what a reviewer should check first.
func Warnings(a *agent.Agent) []string { return warnings(a, host.Confines) }

// warnings is like Warnings. The parameter confines reports whether this system confines servers.
func warnings(a *agent.Agent, confines bool) []string {
	var out []string
	r := a.Reach()
	note := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for i := range a.Servers {
		s := &a.Servers[i]
		if s.Transport == agent.Stdio && (s.Placeholder || s.Digest == "") {
			note("server %s has no package digest, so the code that runs may differ from the reviewed code", s.Alias)
		}
		if len(s.Review) > 0 {
			note("the side-effect classes of these tools on server %s are guesses: %s; check the classes, then remove "+
				"\"review\" from the manifest", s.Alias, diag.Words(s.Review, "and"))
		}
		if s.Transport == agent.StreamableHTTP {
			note("server %s runs outside ambit, so its code cannot be verified", s.Alias)
		}
		ref, err := pack.Identify(*s)
		if err != nil || s.Placeholder || s.Digest == "" || ref.Kind != pack.File && ref.Kind != pack.Program {
			continue
		}
		if ref.Runtime == "" {
			note("the digest of server %s covers only the file %s, not the code that the file loads", s.Alias, diag.Quote(ref.Name))
			continue
		}
		note("the digest of server %s covers only the file %s, not its imports; to cover the imports, put a "+
			"package.json or pyproject.toml into the folder that contains all these files, and run: ambit lock",
			s.Alias, diag.Quote(ref.Name))
	}
	if a.Program != nil && a.Kind == agent.ProgramAgent {
		note("no digest covers the program %s, so the code that runs may differ from the reviewed code",
			diag.Quote(a.Program.Entry))
	}
	unapproved := 0
	for i := range a.Tools {
		t := &a.Tools[i]
		if a.Callable(t) && t.SideEffect != agent.Read && !t.Policy.HumanApproval {
			unapproved++
		}
		if d := t.Annotations.Destructive; d != nil && *d && !t.Policy.HumanApproval && a.Callable(t) {
			note("tool %s is marked destructive, but can be called without approval", t.Name)
		}
	}
	if unapproved == 1 {
		note("1 tool with side effects can be called without approval")
	} else if unapproved > 1 {
		note("%d tools with side effects can be called without approval", unapproved)
	}
	switch shell := slices.Contains(r.SideEffects, agent.Shell); {
	case shell && confines:
		note("the agent can run shell commands; a command can use every file and host that its tool server can use")
	case shell:
		note("the agent can run shell commands, so it can do everything that the user who runs the agent can do")
	}
	if !confines && hasLocalServer(a) {
		note("%s", unconfined)
	}
	if r.AnyHost {
		note("the agent can reach hosts that the manifest does not name: %s", r.AnyHostReason)
	}
	for _, s := range r.Secrets {
		alias, _ := strings.CutPrefix(s.For, "server ")
		server := a.Server(alias)
		anyHost := agent.Right{Kind: agent.CanConnect, What: agent.Any}
		if len(s.Hosts) == 0 && (!confines || server == nil || a.Access(server).Allows(anyHost)) {
			note("secret %s is given to %s, which can send the secret to any host", s.Name, s.For)
		}
	}
	for _, path := range r.Paths {
		if slices.Contains([]string{"~", "$env:HOME"}, path) {
			note("the agent can use %s and everything below it", path)
		}
	}
	if a.Delivery.Auth == "none" && slices.Contains(a.Delivery.Modes, "mcp.remote") {
		note("\"auth\" is \"none\", so any client that knows the agent's address can call it")
	}
	if a.SideEffects.Restricted && len(a.SideEffects.Allowed) == 0 {
		note("no side effect is allowed, so every call will be refused")
	}
	return out
}
