package host

import (
	"errors"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
)

// lacks is the refusal of a request whose credential is not there; nil if it is, or
// if the tool needs none.
func (a *Agent) lacks(t *agent.Tool) *call.Refusal {
	h, ok := t.Binding.(agent.HTTP)
	if !ok || h.AuthRef == "" {
		return nil
	}
	slot := a.manifest.Agent().Slot(h.AuthRef)
	if slot == nil {
		return nil
	}
	_, err := a.options.Credentials.Slot(a.manifest.Agent(), slot)
	r, _ := errors.AsType[*call.Refusal](err)
	return r
}
