package mcpwire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Use [errors.Is] to test for these errors.
var (
	// ErrClosed is wrapped by the error of a call if the connection was closed before or during the call. The error also
	// contains the cause, unless the connection was closed by Close.
	ErrClosed = errors.New("the connection to the server is closed")

	// ErrNotSent is wrapped by the error of a call that was certainly not sent, so the server cannot have executed it.
	ErrNotSent = errors.New("the request was not sent")

	// ErrRespawnLegacy is wrapped by the error of Negotiate if the server exited or stopped answering after the probe for
	// revision 2026-07-28. In this case, start the server again and set [Options.Legacy].
	ErrRespawnLegacy = errors.New("the server exited or stopped answering after the request server/discover; " +
		"start the server again with the 2025-11-25 handshake (Options.Legacy)")

	// ErrSSEOnly is returned for a URL that supports only the HTTP+SSE transport of revision 2024-11-05.
	ErrSSEOnly = errors.New("the server's URL supports only the HTTP+SSE transport, which was deprecated in revision " +
		"2025-03-26; instead, use the server's URL for streamable HTTP, which often ends in /mcp")

	// ErrSessionLost is wrapped by the error of a call if the server no longer knows the session and the call also failed
	// in a new session. The error does not wrap [ErrNotSent], because the server has received the call.
	ErrSessionLost = errors.New("the server no longer knows the session")

	// ErrNoAnswer is wrapped by the error of a call if the response stream ended before the answer arrived.
	ErrNoAnswer = errors.New("the server closed the stream before it sent the answer")

	// ErrTooManyPending is wrapped by the error of a call that exceeds [Options.MaxPending].
	ErrTooManyPending = errors.New("too many calls are waiting for an answer from this server")

	// ErrNotNegotiated is wrapped by the error of a call that was made before Negotiate succeeded.
	ErrNotNegotiated = errors.New("Negotiate must succeed before the first call")

	errBacklog    = errors.New("the server does not read its input")
	errUnlistened = errors.New("the server ended the subscription")
	errPanic      = errors.New("ambit itself failed while it handled a message from the server")
)

// RPCError is a JSON-RPC error that the server sent as the answer to a request.
type RPCError struct {
	Code    int64
	Message string
	Data    jsontext.Value // as the server sent it, or nil
	Raw     jsontext.Value // the whole error object, as the server sent it
}

func (e *RPCError) Error() string {
	return fmt.Sprintf("the server answered with error %d: %s", e.Code, sample(e.Message))
}

// TooLargeError reports a message that exceeds the size limit. The message was dropped.
type TooLargeError struct{ Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the message is larger than the limit of %d bytes", e.Limit)
}

// MalformedError reports an invalid message from the server.
type MalformedError struct {
	Problem string
	Sample  string // the beginning of the message
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("the server sent a malformed message (%s): %s", e.Problem, sample(e.Sample))
}

func malformed(problem string, msg []byte) *MalformedError {
	return &MalformedError{Problem: problem, Sample: cutSample(string(msg[:min(len(msg), maxSample+1)]))}
}

// VersionError reports that client and server have no protocol revision in common.
type VersionError struct{ Server []string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("there is no common protocol revision: the server supports %s, and ambit supports %s and %s",
		sample(strings.Join(e.Server, ", ")), strings.Join(legacyVersions, ", "), modernVersion)
}

// HTTPError is an HTTP response with an error status.
type HTTPError struct {
	Status int
	Sample string    // the beginning of a body that is not a JSON-RPC error
	RPC    *RPCError // the JSON-RPC error in the body, or nil
}

func (e *HTTPError) Error() string {
	switch {
	case e.RPC != nil:
		return fmt.Sprintf("HTTP status %d: %v", e.Status, e.RPC)
	case e.Sample != "":
		return fmt.Sprintf("HTTP status %d: %s", e.Status, sample(e.Sample))
	default:
		return fmt.Sprintf("HTTP status %d", e.Status)
	}
}

// Unwrap returns the JSON-RPC error in the body, or nil.
func (e *HTTPError) Unwrap() error {
	if e.RPC == nil {
		return nil // a nil *RPCError in the error interface would not be nil
	}
	return e.RPC
}

// RedirectError reports a redirect. Redirects are not followed, because credentials and arguments must reach only the
// configured URL.
type RedirectError struct {
	Status   int
	Location string
}

func (e *RedirectError) Error() string {
	return fmt.Sprintf("the server redirects (HTTP status %d) to %s, but redirects are not followed; "+
		"if that is the right URL, set it as the server's URL", e.Status, sample(e.Location))
}

// closedError is an [ErrClosed] with its cause.
type closedError struct{ cause error }

func (e *closedError) Error() string {
	if e.cause == nil {
		return ErrClosed.Error()
	}
	return ErrClosed.Error() + ": " + e.cause.Error()
}

func (e *closedError) Is(target error) bool { return target == ErrClosed }
func (e *closedError) Unwrap() error        { return e.cause }

// sessionLost is an [ErrSessionLost] with the id of the lost session.
type sessionLost struct{ session string }

func (e *sessionLost) Error() string   { return ErrSessionLost.Error() }
func (e *sessionLost) Is(t error) bool { return t == ErrSessionLost }

// notSent wraps an error with [ErrNotSent], unless the error already wraps it.
func notSent(err error) error {
	if errors.Is(err, ErrNotSent) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotSent, err)
}

const maxSample = 200

// sample quotes the beginning of a server's text so that it is safe to print on a terminal.
func sample(s string) string {
	if len(s) > maxSample {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(cutSample(s), "�"))
	}
	return fmt.Sprintf("%q", s)
}

// cutSample returns at most maxSample bytes from the start of a text. It cuts the text between words, because secret
// scanners would not recognize half of a credential.
func cutSample(s string) string {
	if len(s) <= maxSample {
		return s
	}
	end := strings.LastIndexFunc(s[:maxSample], func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"'`,;:=&?/|<>{}[]()", r)
	})
	return s[:max(end, 0)]
}
