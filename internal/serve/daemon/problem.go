package daemon

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/front"
)

// problem is an error response of the API. Its JSON is {"error":{"code","message","hint"}}. The response to a refused
// call also contains the other fields of the refusal.
type problem struct {
	status int
	// challenge is the value of the header WWW-Authenticate, which every answer with status 401 has.
	challenge string

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
	if p.challenge != "" {
		w.Header().Set("WWW-Authenticate", p.challenge)
	}
	if p.RetryAfter != nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(*p.RetryAfter))))
	}
	reply(w, p.status, map[string]any{"error": p})
}

// refusal returns the problem as a refusal.
func (p *problem) refusal() *call.Refusal {
	r := call.Refuse(p.Stage, call.Code(p.Code), "%s", p.Message)
	r.Hint = p.Hint
	return r
}

// Meaning explains an error code of the API. [call.Meanings] explains the codes of refused calls.
type Meaning struct {
	Code, Title, Why, Fix string
	Status                int
}

//go:embed codes.json
var codesFile []byte

// Meanings returns the explanations of the API's own error codes. A test compares them with the codes that the handlers
// use.
var Meanings = sync.OnceValue(func() (all []Meaning) {
	if err := json.Unmarshal(codesFile, &all); err != nil {
		panic(err)
	}
	return all
})

// failure returns a problem with one of the codes in [Meanings]. The code determines the HTTP status.
func failure(code, message, hint string) *problem {
	p := &problem{status: http.StatusInternalServerError, Code: code, Message: message, Hint: hint}
	for _, m := range Meanings() {
		if m.Code == code {
			p.status = m.Status
		}
	}
	return p
}

// jsonAnswer is an HTTP handler that returns a JSON document or a problem.
type jsonAnswer func(r *http.Request) (doc any, trouble *problem)

// accepted is a document that is sent with the status 202 Accepted.
type accepted struct{ doc any }

func (f jsonAnswer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	doc, trouble := f(r)
	if trouble != nil {
		trouble.write(w)
		return
	}
	status := http.StatusOK
	if a, ok := doc.(accepted); ok {
		status, doc = http.StatusAccepted, a.doc
	}
	text := encode(doc)
	release, err := front.HoldAnswer(r.Context(), len(text))
	if err != nil {
		failure("busy", err.Error(), "").write(w)
		return
	}
	defer release()
	send(w, status, text)
}

// unavailable logs an error and returns a problem that does not reveal the error.
func (d *Daemon) unavailable(what string, err error) *problem {
	d.options.Log("%s: %v", what, err)
	return failure("unavailable", what+" at the moment", "see the daemon's log for the reason")
}

func leavingProblem() *problem {
	return failure("shutting_down", "the daemon is shutting down", "retry when the daemon is running again")
}

func badRequest(message, hint string) *problem {
	return failure("bad_request", message, hint)
}

// refusedProblem converts the refusal of a call to a problem. The status is 403 if refusalStatus does not list the
// refusal's code.
func refusedProblem(r *call.Refusal, id string) *problem {
	status := cmp.Or(refusalStatus[r.Code], http.StatusForbidden)
	return &problem{
		status: status, Code: string(r.Code), Reason: r.Reason, Message: r.Message, Hint: r.HintFor(""),
		Stage: r.Stage, Effect: r.Effect, Retryable: &r.Retryable, RetryAfter: r.RetrySeconds(), CallID: id,
	}
}

var refusalStatus = map[call.Code]int{
	call.UnpinnedTool:             http.StatusBadRequest,
	call.InvalidURI:               http.StatusBadRequest,
	call.VersionMismatch:          http.StatusBadRequest,
	call.InputTooLong:             http.StatusBadRequest,
	call.InputInvalid:             http.StatusBadRequest,
	call.UnknownTool:              http.StatusNotFound,
	call.RateLimited:              http.StatusTooManyRequests,
	call.ServerUnavailable:        http.StatusServiceUnavailable,
	call.ServerDrifted:            http.StatusServiceUnavailable,
	call.CredentialMissing:        http.StatusServiceUnavailable,
	call.IsolationUnavailable:     http.StatusServiceUnavailable,
	call.StoreUnavailable:         http.StatusServiceUnavailable,
	call.TimedOut:                 http.StatusGatewayTimeout,
	call.SecretLeak:               http.StatusBadGateway,
	call.OutputInvalid:            http.StatusBadGateway,
	call.ProgramFailed:            http.StatusBadGateway,
	call.OutcomeUnknown:           http.StatusBadGateway,
	call.NativeToolNotImplemented: http.StatusNotImplemented,
}

func reply(w http.ResponseWriter, status int, v any) { send(w, status, encode(v)) }

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the API's documents can be encoded
	return b.Bytes()
}

func send(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may be gone
}
