package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// wondering finds out what the door cannot say of a call that nobody makes: what
// was not judged, and what the work would lack.
type wondering struct {
	t        *terminal
	home     home.Home
	m        *manifest.Manifest
	agent    *agent.Agent
	tool     *agent.Tool
	call     *call.Call
	operator guard.Operator
	verdict  *whyVerdict
}

func (w *wondering) ask(stage, hint, format string, args ...any) {
	w.verdict.Unknown = append(w.verdict.Unknown, openQuestion{stage, fmt.Sprintf(format, args...), hint})
}

// unjudged lists what only arguments could decide, if there are none.
func (w *wondering) unjudged(name string) {
	if len(w.call.Arguments) > 0 {
		return
	}
	about := func(stage, format string, args ...any) {
		w.verdict.arguments = true
		w.ask(stage, "say with which arguments: --input '{…}'", format, args...)
	}
	if w.t.rules(w.home).Foresee(w.agent, name, w.tool, w.call.Principal) == policy.Depends {
		about("gate", "rules of your policy look at the arguments, and there are none")
	}
	if !w.verdict.Allowed {
		return
	}
	if rails := w.rails(); rails != "" {
		about(guard.StageIn, "the arguments were not looked at: %s", rails)
	}
	if limited(w.tool) {
		about("limit", "the limits were not looked at: %s", strings.Join(limitsOf(w.tool), ", "))
	}
}

// rails is what holds the arguments of the tool, in words.
func (w *wondering) rails() string {
	rails := guard.Merge(w.operator, w.agent.Guardrails)
	var held []string
	if w.tool.InputSchema != "" {
		held = append(held, "the tool's schema")
	}
	if rails.MaxLength > 0 {
		held = append(held, fmt.Sprintf("at most %d bytes", rails.MaxLength))
	}
	if n := len(rails.Input.Deny); n > 0 {
		held = append(held, count(n, "deny pattern"))
	}
	return strings.Join(held, ", ")
}

func limitsOf(t *agent.Tool) []string {
	var limits []string
	if t.Policy.Rate != nil {
		limits = append(limits, "at most "+t.Policy.Rate.String())
	}
	if s := t.Policy.Spend; s != nil {
		for _, c := range [][2]string{{s.PerCall, "in a call"}, {s.PerDay, "in a day"}} {
			if c[0] != "" {
				limits = append(limits, strings.Join(strings.Fields("at most "+c[0]+" "+s.Currency+" "+c[1]), " "))
			}
		}
	}
	return limits
}

// needs refuses a call for want of a credential or a program, as the work itself
// would.
func (w *wondering) needs() {
	source := &credential.Source{Agent: registered(w.home, w.m), Vault: credential.Open(w.home)}
	var missing []*call.Refusal
	switch b := w.tool.Binding.(type) {
	case agent.HTTP:
		if slot := w.agent.Slot(b.AuthRef); slot != nil {
			_, err := source.Slot(w.agent, slot)
			missing = asRefusals(err)
		}
	case agent.RunProgram:
		missing = w.entry()
		for i := range w.agent.Slots {
			if slot := &w.agent.Slots[i]; slot.Required {
				_, err := source.Slot(w.agent, slot)
				missing = append(missing, asRefusals(err)...)
			}
		}
	case agent.OnServer:
		missing = w.lookedUp(source, b.Alias)
	}
	for _, r := range missing {
		w.verdict.Allowed, w.verdict.lacking = false, true
		w.verdict.Reasons = append(w.verdict.Reasons, call.Reason{Stage: r.Stage, Code: r.Code, Detail: r.Message, Hint: r.Hint})
	}
}

// entry is why the program of an agent that is one cannot be started: it is not there.
func (w *wondering) entry() []*call.Refusal {
	if w.agent.Dialect != agent.Covenant {
		return nil
	}
	file := w.agent.Program.Entry
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(w.m.Path), file)
	}
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	r := call.Refuse("act", call.ProgramFailed, "the entry %s cannot be found", diag.Quote(w.agent.Program.Entry))
	r.Hint = "build the program first, or correct entry; it is relative to the manifest"
	return []*call.Refusal{r}
}

func asRefusals(err error) []*call.Refusal {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return []*call.Refusal{r}
	}
	return nil
}

// lookedUp are the references of servers that lead nowhere. An agent whose
// servers its manifest starts is up only with all of them.
func (w *wondering) lookedUp(source *credential.Source, alias string) []*call.Refusal {
	lookup := source.Lookup(w.agent)
	var missing []*call.Refusal
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
				r.Hint = fmt.Sprintf("store it: ambit secret set %s %s, or set the environment variable %s", diag.ShellWord(source.Agent), diag.ShellWord(ref), ref)
				missing = append(missing, r)
			}
		}
	}
	return missing
}

// untried says what is found out only by doing the work.
func (w *wondering) untried() {
	switch b := w.tool.Binding.(type) {
	case agent.OnServer:
		w.unlocked(b.Alias)
		w.ask("act", "prove it: ambit verify "+diag.ShellWord(w.m.Path), "server %s was not started; a call starts and proves it first", b.Alias)
	case agent.RunProgram:
		w.ask("act", "see whether programs can run here: ambit doctor", "the program was not started")
	case agent.Compose:
		w.ask("act", "", "the agent %s has a say too, and was not asked about its tool %s", b.Agent, b.Tool)
	}
}

// unlocked holds the arguments to the schema that the server was locked with. The
// server itself decides about them.
func (w *wondering) unlocked(alias string) {
	folder, err := filepath.Abs(filepath.Dir(w.m.Path))
	if err != nil || len(w.call.Arguments) == 0 {
		return
	}
	lock, err := readLock(folder)
	if err != nil {
		return
	}
	server := lock.Server(w.agent.ID, alias)
	if server == nil {
		return
	}
	schema := rawjson.Lookup([]byte(server.Tools[w.tool.Name].Definition), "inputSchema")
	if len(schema) == 0 {
		return
	}
	if r := guard.NewSchema(string(schema)).Input(w.call.Arguments); r != nil {
		w.ask("act", "", "by its locked schema the server is likely to refuse the arguments: %s", r.Message)
	}
}
