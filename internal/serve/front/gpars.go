package front

import (
	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
)

// Error codes that GPARS defines. GPARS agents read these codes instead of results in band; other
// refusals reach them like other agents.
const (
	gparsDenied      = -32001
	gparsUnavailable = -32002

	authorizationDenied = "AUTHORIZATION_DENIED"
	serverUnavailable   = "SERVER_UNAVAILABLE"
)

// gparsError converts a refusal to the form that GPARS defines; nil if GPARS defines none. A denial
// reveals neither the rule nor whether the tool exists. Only a call that passed the policy learns
// which server is unavailable.
func (a *Agent) gparsError(tool string, r *call.Refusal) *rpcError {
	who := a.Gateway.Agent()
	if who.Dialect != agent.GPARS {
		return nil
	}
	if r.Stage == gate.Stage || r.Stage == "resolve" && r.Code != call.TimedOut {
		return &rpcError{Code: gparsDenied, Message: "The operation is not permitted.", Data: map[string]any{"gpars_code": authorizationDenied}}
	}
	switch r.Code {
	case call.ServerUnavailable, call.ServerDrifted, call.VersionMismatch:
	default:
		return nil
	}
	data := map[string]any{"gpars_code": serverUnavailable, "retryable": r.Retryable}
	if s := r.RetrySeconds(); s != nil {
		data["retry_after"] = *s
	}
	message := "A required MCP server is not reachable."
	if t := a.served(tool); t != nil {
		if on, ok := t.Binding.(agent.OnServer); ok {
			message = "MCP server '" + on.Alias + "' is not reachable."
			data["server_id"] = on.Alias
		}
	}
	return &rpcError{Code: gparsUnavailable, Message: message, Data: data}
}
