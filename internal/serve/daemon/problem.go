package daemon

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// problem is the JSON of every error: {"error":{"code","message","hint"}}. A refused call adds the
// fields of its refusal.
type problem struct {
	status int

	Code      string      `json:"code"`
	Reason    string      `json:"reason,omitempty"`
	Message   string      `json:"message"`
	Hint      string      `json:"hint"`
	Stage     string      `json:"stage,omitempty"`
	Effect    call.Effect `json:"effect,omitempty"`
	Retryable *bool       `json:"retryable,omitempty"`
	// RetryAfter is the number of seconds until a retry can succeed.
	RetryAfter *float64 `json:"retry_after,omitempty"`
	CallID     string   `json:"call_id,omitempty"`
}

func (p *problem) write(w http.ResponseWriter) {
	if p.RetryAfter != nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(*p.RetryAfter))))
	}
	reply(w, p.status, map[string]any{"error": p})
}

// unavailable logs an error and answers without it.
func (d *Daemon) unavailable(w http.ResponseWriter, what string, err error) {
	d.options.Log("%s: %v", what, err)
	(&problem{
		status: http.StatusServiceUnavailable, Code: "unavailable", Message: what + " at the moment",
		Hint: "the daemon's log has the reason",
	}).write(w)
}

func leavingProblem() *problem {
	return &problem{status: http.StatusServiceUnavailable, Code: "shutting_down", Message: "the daemon is shutting down", Hint: "retry when the daemon is running again"}
}

func badRequest(message, hint string) *problem {
	return &problem{status: http.StatusBadRequest, Code: "bad_request", Message: message, Hint: hint}
}

// refusedProblem converts a refusal. Codes that refusalStatus does not list are decisions against
// the call.
func refusedProblem(r *call.Refusal, id string) *problem {
	status := cmp.Or(refusalStatus[r.Code], http.StatusForbidden)
	return &problem{
		status: status, Code: string(r.Code), Reason: r.Reason, Message: r.Message, Hint: r.Hint,
		Stage: r.Stage, Effect: r.Effect, Retryable: &r.Retryable, RetryAfter: r.RetrySeconds(), CallID: id,
	}
}

var refusalStatus = map[call.Code]int{
	call.UnpinnedTool: http.StatusBadRequest, call.InvalidURI: http.StatusBadRequest, call.VersionMismatch: http.StatusBadRequest,
	call.InputTooLong: http.StatusBadRequest, call.InputInvalid: http.StatusBadRequest,
	call.UnknownTool:       http.StatusNotFound,
	call.RateLimited:       http.StatusTooManyRequests,
	call.ServerUnavailable: http.StatusServiceUnavailable, call.ServerDrifted: http.StatusServiceUnavailable,
	call.CredentialMissing: http.StatusServiceUnavailable, call.IsolationUnavailable: http.StatusServiceUnavailable,
	call.StoreUnavailable: http.StatusServiceUnavailable,
	call.TimedOut:         http.StatusGatewayTimeout,
	call.SecretLeak:       http.StatusBadGateway, call.OutputInvalid: http.StatusBadGateway, call.ProgramFailed: http.StatusBadGateway,
	call.OutcomeUnknown: http.StatusBadGateway, call.NativeToolNotImplemented: http.StatusNotImplemented,
}

// reply writes one JSON document.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client may be gone
}
