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

// dryRun lists what the gateway cannot know without making the call: checks that need
// arguments, and what the call would lack.
type dryRun struct {
	t        *terminal
	home     home.Home
	m        *manifest.Manifest
	agent    *agent.Agent
	tool     *agent.Tool
	call     *call.Call
	operator guard.Operator
	verdict  *whyVerdict
}

func (w *dryRun) ask(stage, hint, format string, args ...any) {
	w.verdict.Unknown = append(w.verdict.Unknown, openQuestion{stage, fmt.Sprintf(format, args...), hint})
}

// unjudged lists the checks that depend on arguments, if none were given.
func (w *dryRun) unjudged(name string) {
	if len(w.call.Arguments) > 0 {
		return
	}
	about := func(stage, format string, args ...any) {
		w.verdict.arguments = true
		w.ask(stage, "give the arguments: --input '{…}'", format, args...)
	}
	if w.t.rules(w.home).Foresee(w.agent, name, w.tool, w.call.Principal) == policy.Depends {
		about("gate", "rules of your policy depend on the arguments, and none were given")
	}
	if !w.verdict.Allowed {
		return
	}
	if checks := w.argumentChecks(); checks != "" {
		about(guard.StageIn, "the arguments were not checked: %s", checks)
	}
	if limited(w.tool) {
		about("limit", "the limits were not checked: %s", strings.Join(limitsOf(w.tool), ", "))
	}
}

// argumentChecks describes the guardrails for the arguments of the tool.
func (w *dryRun) argumentChecks() string {
	guardrails := guard.Merge(w.operator, w.agent.Guardrails)
	var checks []string
	if w.tool.InputSchema != "" {
		checks = append(checks, "the tool's schema")
	}
	if guardrails.MaxLength > 0 {
		checks = append(checks, fmt.Sprintf("at most %d bytes", guardrails.MaxLength))
	}
	if n := len(guardrails.Input.Deny); n > 0 {
		checks = append(checks, count(n, "deny pattern"))
	}
	return strings.Join(checks, ", ")
}

// needs refuses a call if a credential or the program is missing, as the call itself would.
func (w *dryRun) needs() {
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

// entry returns a refusal if the file of a Covenant program does not exist.
func (w *dryRun) entry() []*call.Refusal {
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

// lookedUp returns a refusal for each unset credential of the servers. A GPARS agent needs
// those of one server; other agents start only with all servers.
func (w *dryRun) lookedUp(source *credential.Source, alias string) []*call.Refusal {
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
				r := call.Refuse(credential.Stage, call.CredentialMissing, "server %s needs %s, and it is not set", s.Alias, ref)
				r.Hint = fmt.Sprintf("store it: ambit secret set %s %s, or set the environment variable %s", diag.ShellWord(source.Agent), diag.ShellWord(ref), ref)
				missing = append(missing, r)
			}
		}
	}
	return missing
}

// untried lists what only the call itself can show.
func (w *dryRun) untried() {
	switch b := w.tool.Binding.(type) {
	case agent.OnServer:
		w.unlocked(b.Alias)
		w.ask("act", "prove it: ambit verify "+diag.ShellWord(w.m.Path), "server %s was not started; a call first starts and proves it", b.Alias)
	case agent.RunProgram:
		w.ask("act", "see whether programs can run here: ambit doctor", "the program was not started")
	case agent.Compose:
		w.ask("act", "", "the agent %s decides about its tool %s, and was not asked", b.Agent, b.Tool)
	}
}

// unlocked checks the arguments against the locked schema of the server. The result is not a
// refusal, because the server itself decides.
func (w *dryRun) unlocked(alias string) {
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
		w.ask("act", "", "the server will probably refuse the arguments, which do not match its locked schema: %s", r.Message)
	}
}
