package front

import (
	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/gate"
)

// These error codes are defined by GPARS. Clients of a GPARS agent get them as protocol errors. All other refusals are
// sent as results with isError.
const (
	gparsDenied      = -32001
	gparsUnavailable = -32002

	authorizationDenied = "AUTHORIZATION_DENIED"
	serverUnavailable   = "SERVER_UNAVAILABLE"
)

// gparsError converts a refusal to the protocol error that GPARS defines for it. It returns nil if GPARS defines no
// such error, or if the agent's dialect is not GPARS. The error for a call that is not permitted reveals neither the
// violated rule nor whether the tool exists. An error contains the name of an unavailable server only if the policy has
// permitted the call.
func (a *Agent) gparsError(tool string, r *call.Refusal) *rpcError {
	who := a.Gateway.Agent()
	if who.Dialect != agent.GPARS {
		return nil
	}
	if r.Stage == gate.Stage || r.Stage == "resolve" && r.Code != call.TimedOut {
		data := map[string]any{"gpars_code": authorizationDenied}
		return &rpcError{Code: gparsDenied, Message: "The operation is not permitted.", Data: data}
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
	if t := a.toolNamed(tool); t != nil {
		if on, ok := t.Binding.(agent.OnServer); ok {
			message = "MCP server '" + on.Alias + "' is not reachable."
			data["server_id"] = on.Alias
		}
	}
	return &rpcError{Code: gparsUnavailable, Message: message, Data: data}
}
