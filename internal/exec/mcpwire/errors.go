package mcpwire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Errors to test for with [errors.Is].
var (
	// ErrClosed is in every error of a call whose connection ended, by Close or by the server. The error
	// contains the cause.
	ErrClosed = errors.New("the connection to the server is closed")

	// ErrNotSent is in the error of a call that was certainly not sent: the server cannot have acted on it.
	ErrNotSent = errors.New("not sent")

	// ErrRespawnLegacy is in the error of Negotiate when the server exited, or stopped answering, after the
	// probe for 2026-07-28. Start the server again with [Options.Legacy].
	ErrRespawnLegacy = errors.New("the server did not survive server/discover: " +
		"start it again and use the 2025-11-25 handshake (Options.Legacy)")

	// ErrSSEOnly is the error of an address that speaks only the HTTP+SSE transport of 2024-11-05.
	ErrSSEOnly = errors.New("this address speaks only the HTTP+SSE transport, which was deprecated in " +
		"2025-03-26: use the server's streamable HTTP address, often the same ending in /mcp")

	// ErrSessionLost is in the error of a call whose session the server lost and which failed in a new
	// session, too. The server received the call, so the error is not an [ErrNotSent].
	ErrSessionLost = errors.New("the server no longer knows the session")

	// ErrNoAnswer is in the error of a call whose stream ended without the answer.
	ErrNoAnswer = errors.New("the server closed the stream without an answer")

	// ErrTooManyPending is in the error of a call beyond [Options.MaxPending].
	ErrTooManyPending = errors.New("too many calls are waiting for this server")

	// ErrNotNegotiated is the error of a call before Negotiate has succeeded.
	ErrNotNegotiated = errors.New("Negotiate must succeed before the first call")

	errBacklog    = errors.New("the server does not read what it is sent")
	errUnlistened = errors.New("the server ended the subscription")
)

// RPCError is the server's error answer.
type RPCError struct {
	Code    int64
	Message string
	Data    jsontext.Value // as the server wrote it, or nil
	Raw     jsontext.Value // the whole error object as the server wrote it
}

func (e *RPCError) Error() string {
	return fmt.Sprintf("the server answered with error %d: %s", e.Code, sample(e.Message))
}

// TooLargeError reports a message beyond the limit. The excess was not kept.
type TooLargeError struct{ Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the message is larger than the limit of %d bytes", e.Limit)
}

// MalformedError reports that the server sent an invalid message.
type MalformedError struct {
	Problem string
	Sample  string // the beginning of the message
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("the server sent a malformed message (%s): %s", e.Problem, sample(e.Sample))
}

func malformed(problem string, msg []byte) *MalformedError {
	return &MalformedError{Problem: problem, Sample: beginning(string(msg[:min(len(msg), maxSample+1)]))}
}

// VersionError reports that client and server have no protocol revision in common.
type VersionError struct{ Server []string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("no common protocol revision: the server speaks %s, we speak %s and %s",
		sample(strings.Join(e.Server, ", ")), strings.Join(legacyVersions, ", "), modernVersion)
}

// HTTPError is an answer with an error status. RPC is the error in its body, if there is one.
type HTTPError struct {
	Status int
	Sample string // the beginning of the body, if it is not an RPC error
	RPC    *RPCError
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

// Unwrap returns the error in the body.
func (e *HTTPError) Unwrap() error {
	if e.RPC == nil {
		return nil // not a nil pointer in an interface
	}
	return e.RPC
}

// RedirectError reports a redirect. Redirects are not followed, because credentials and arguments may go
// only to the configured address.
type RedirectError struct {
	Status   int
	Location string
}

func (e *RedirectError) Error() string {
	return fmt.Sprintf("the server redirects (HTTP status %d) to %s: redirects are not followed; "+
		"if that is the right address, use it", e.Status, sample(e.Location))
}

// closedError is ErrClosed with its cause.
type closedError struct{ cause error }

func (e *closedError) Error() string {
	if e.cause == nil {
		return ErrClosed.Error()
	}
	return ErrClosed.Error() + ": " + e.cause.Error()
}

func (e *closedError) Is(target error) bool { return target == ErrClosed }
func (e *closedError) Unwrap() error        { return e.cause }

// sessionLost is ErrSessionLost with the lost session.
type sessionLost struct{ session string }

func (e *sessionLost) Error() string   { return ErrSessionLost.Error() }
func (e *sessionLost) Is(t error) bool { return t == ErrSessionLost }

func notSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }

const maxSample = 200

// sample quotes the beginning of a server's text, safe for terminals.
func sample(s string) string {
	if len(s) > maxSample {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(beginning(s), "�"))
	}
	return fmt.Sprintf("%q", s)
}

// beginning returns the beginning of a text without the word at the cut: scanners do not recognize half of
// a credential.
func beginning(s string) string {
	if len(s) <= maxSample {
		return s
	}
	end := strings.LastIndexFunc(s[:maxSample], func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"'`,;:=&?/|<>{}[]()", r)
	})
	return s[:max(end, 0)]
}
