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

// openQuestions finds what the gateway cannot decide without making the call: checks
// that need arguments, and missing credentials and programs.
type openQuestions struct {
	t        *terminal
	home     home.Home
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

// unjudged lists the checks that need arguments, if the call has none.
func (w *openQuestions) unjudged(name string) {
	if len(w.call.Arguments) > 0 {
		return
	}
	about := func(stage, format string, args ...any) {
		w.verdict.arguments = true
		w.add(stage, "pass the arguments: --input '{…}'", format, args...)
	}
	if w.t.rules(w.home).Foresee(w.agent, name, w.tool, w.call.Principal) == policy.Depends {
		about("gate", "rules of your policy depend on the arguments")
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
		about(guard.StageIn, "the arguments were not checked: %s", strings.Join(checks, ", "))
	}
	if limited(w.tool) {
		about("limit", "the limits were not checked: %s", strings.Join(limitsOf(w.tool), ", "))
	}
}

// needs refuses a call that lacks a credential or a program, as the call itself would.
func (w *openQuestions) needs() {
	source := &credential.Source{Agent: registered(w.home, w.m), Vault: credential.Open(w.home)}
	switch b := w.tool.Binding.(type) {
	case agent.HTTP:
		if slot := w.agent.Slot(b.AuthRef); slot != nil {
			_, err := source.Slot(w.agent, slot)
			w.refuse(err)
		}
	case agent.RunProgram:
		w.entry()
		for i := range w.agent.Slots {
			if slot := &w.agent.Slots[i]; slot.Required {
				_, err := source.Slot(w.agent, slot)
				w.refuse(err)
			}
		}
	case agent.OnServer:
		w.references(source, b.Alias)
	}
}

// refuse adds a refusal to the verdict. Other errors do not decide the call.
func (w *openQuestions) refuse(err error) {
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		w.verdict.Allowed, w.verdict.lacking = false, true
		w.verdict.Reasons = append(w.verdict.Reasons, r.Deny(r.Stage))
	}
}

// entry refuses the call if the program of a Covenant agent is missing.
func (w *openQuestions) entry() {
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
	r.Hint = "build the program first, or correct entry; it is relative to the manifest"
	w.refuse(r)
}

// references refuses the call for each unset reference of a server. A GPARS agent needs
// only the tool's server; other agents need all of their servers.
func (w *openQuestions) references(source *credential.Source, alias string) {
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
				r.Hint = fmt.Sprintf("store it: ambit secret set %s %s, or set the environment variable %s",
					diag.ShellWord(source.Agent), diag.ShellWord(ref), ref)
				w.refuse(r)
			}
		}
	}
}

// untried lists the questions that only the call itself answers.
func (w *openQuestions) untried() {
	switch b := w.tool.Binding.(type) {
	case agent.OnServer:
		w.lockedSchema(b.Alias)
		w.add("act", "verify it: ambit verify "+diag.ShellWord(w.m.Path),
			"server %s was not started; a call starts and verifies it first", b.Alias)
	case agent.RunProgram:
		w.add("act", "see whether programs can run here: ambit doctor", "the program was not started")
	case agent.Compose:
		w.add("act", "", "the agent %s decides too, and was not asked about its tool %s", b.Agent, b.Tool)
	}
}

// lockedSchema checks the arguments against the server's schema in the lock. The server
// itself makes the decision.
func (w *openQuestions) lockedSchema(alias string) {
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
		w.add("act", "", "the server will probably refuse the arguments, by its locked schema: %s", r.Message)
	}
}
