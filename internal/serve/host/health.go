package host

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// The states of an agent.
const (
	Starting    = "starting"
	Ready       = "ready"
	Quarantined = "quarantined"
	Failed      = "failed"
)

// Failure is the reason why an agent is not ready.
type Failure struct {
	Refusal *call.Refusal
	// Server is the alias of the server that failed. It is empty if the agent failed for another reason.
	Server string
	// Lacking reports whether the agent failed because something that it needs is missing on this machine.
	Lacking bool
}

func (f *Failure) Error() string { return f.Refusal.Error() }

func (f *Failure) Unwrap() error { return f.Refusal }

// trouble returns the reason why the agent is not ready, or nil. The caller must first wait until every server has been
// verified or has failed. An agent with failed servers is ready if no required server has failed and at least one
// server works. Once the agent has been ready, a server that fails affects only its own tools.
func (a *Agent) trouble() *Failure {
	if f := a.failure; f != nil {
		return &Failure{Refusal: a.redact(f.Refusal), Lacking: f.Lacking}
	}
	if !a.late.Load() {
		return nil
	}
	if p := decisive(a.servers.Proofs()); p != nil {
		return &Failure{Refusal: a.redact(p.Refusal), Server: p.Alias, Lacking: p.Lacking}
	}
	if r := a.rememberLock(); r != nil {
		return &Failure{Refusal: r, Lacking: true}
	}
	a.late.Store(false)
	return nil
}

// decisive returns the failed server that makes the whole agent fail, or nil.
func decisive(proofs []toolserver.Proof) (first *toolserver.Proof) {
	works := false
	for i := range proofs {
		switch p := &proofs[i]; {
		case p.Lazy:
		case p.OK:
			works = true
		case p.Required:
			return p
		case first == nil:
			first = p
		}
	}
	if works {
		return nil
	}
	return first
}

// unavailable returns the reasons why servers of a working agent are quarantined. It returns nil if the agent as a
// whole is not ready. Lazy servers are left out, because they are tried again at their next use.
func (a *Agent) unavailable() (why []*call.Refusal) {
	select {
	case <-a.up:
	default:
		return nil
	}
	if a.noStore != nil || a.trouble() != nil {
		return nil
	}
	for _, p := range a.Proofs() {
		if !p.OK && !p.Lazy && p.Refusal != nil {
			why = append(why, p.Refusal)
		}
	}
	return why
}

// redact removes secrets from a refusal. The message of a refusal can come from a server, so callers must never see
// the original.
func (a *Agent) redact(r *call.Refusal) *call.Refusal {
	if r == nil {
		return nil
	}
	if g := a.Gateway(); g != nil {
		return g.Redact(r)
	}
	copied := *r
	copied.Message, copied.Hint = "the reason is withheld, because ambit needs a store to check it for secrets", ""
	return &copied
}

// message returns the parameters of a log message about a failure.
func message(text string) jsontext.Value {
	return mustJSON(map[string]any{"level": "error", "logger": "ambit", "data": text})
}

// State returns Starting, Ready, Quarantined or Failed. The state is Quarantined if a server has drifted, or if only
// some servers work.
func (a *Agent) State() string {
	select {
	case <-a.up:
	default:
		return Starting
	}
	if f := a.failure; f != nil {
		if f.Refusal.Code == call.ServerDrifted {
			return Quarantined
		}
		return Failed
	}
	proofs := a.Proofs()
	state := Ready
	for _, p := range proofs {
		switch {
		case p.Drifted():
			return Quarantined
		case !p.OK && p.Lazy && p.NotFound: // a lazy server fails the agent only if it was not found
			state = Failed
		case !p.OK && !p.Lazy && state == Ready:
			state = Quarantined
		}
	}
	if decisive(proofs) != nil {
		return Failed
	}
	return state
}
