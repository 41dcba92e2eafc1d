package mcpwire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Errors to test for with [errors.Is].
var (
	// ErrClosed is in every error of a call whose connection went away, by
	// Close or by the server. Its cause is in the same error.
	ErrClosed = errors.New("the connection to the server is closed")

	// ErrNotSent is in the error of a call that certainly never left: the
	// server cannot have acted on it.
	ErrNotSent = errors.New("not sent")

	// ErrRespawnLegacy is in the error of Negotiate when the server went away
	// on, or never answered after, the question for the 2026-07-28 protocol.
	// Start it again and set [Options.Legacy].
	ErrRespawnLegacy = errors.New("the server did not survive server/discover: start it again and use the 2025-11-25 handshake (Options.Legacy)")

	// ErrSSEOnly is the error of an address that speaks only the HTTP+SSE
	// transport of 2024-11-05.
	ErrSSEOnly = errors.New("this address speaks only the HTTP+SSE transport, which was deprecated in 2025-03-26: use the server's streamable HTTP address, often the same ending in /mcp")

	// ErrSessionLost is in the error of a call whose session the server forgot,
	// and which a new one did not help. The server got the call, so it is no
	// [ErrNotSent]: that nothing was done is only what the server says.
	ErrSessionLost = errors.New("the server does not know the session any more")

	// ErrNoAnswer is in the error of a call whose answer stream ended without
	// the answer.
	ErrNoAnswer = errors.New("the server ended its answer without answering")

	// ErrTooManyPending is in the error of a call beyond [Options.MaxPending].
	ErrTooManyPending = errors.New("too many calls are waiting for this server")

	// ErrNotNegotiated is the error of a call before Negotiate has succeeded.
	ErrNotNegotiated = errors.New("no call is possible before Negotiate")

	errBacklog    = errors.New("the server does not read what it is sent")
	errUnlistened = errors.New("the server ended the subscription")
)

// RPCError is an error that the server answered with.
type RPCError struct {
	Code    int64
	Message string
	Data    jsontext.Value // as the server wrote it; nil if there was none
	Raw     jsontext.Value // the whole error object as the server wrote it
}

func (e *RPCError) Error() string {
	return fmt.Sprintf("the server answered with error %d: %s", e.Code, sample(e.Message))
}

// TooLargeError says that a message passes the limit. Nothing beyond the limit
// was kept.
type TooLargeError struct{ Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the message is larger than the limit of %d bytes", e.Limit)
}

// MalformedError says that the server sent something that is no message.
type MalformedError struct {
	Problem string
	Sample  string // how it begins
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("the server sent a malformed message (%s): %s", e.Problem, sample(e.Sample))
}

func malformed(problem string, msg []byte) *MalformedError {
	return &MalformedError{Problem: problem, Sample: begin(string(msg[:min(len(msg), maxSample+1)]))}
}

// VersionError says that the server speaks no protocol revision that we speak.
type VersionError struct{ Server []string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("no common protocol revision: the server speaks %s, we speak %s and %s",
		sample(strings.Join(e.Server, ", ")), strings.Join(legacyVersions, ", "), modernVersion)
}

// HTTPError is an answer with a status other than success. RPC is the error in
// its body, if it holds one.
type HTTPError struct {
	Status int
	Sample string // how the body begins, if it is not an RPC error
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

// Unwrap gives the error in the body.
func (e *HTTPError) Unwrap() error {
	if e.RPC == nil {
		return nil // not a nil pointer in an interface
	}
	return e.RPC
}

// RedirectError says that the server sent us elsewhere. We do not go: whoever
// named the address decided where credentials and arguments may be sent.
type RedirectError struct {
	Status   int
	Location string
}

func (e *RedirectError) Error() string {
	return fmt.Sprintf("the server redirects (HTTP status %d) to %s: redirects are not followed; if that is the right address, use it", e.Status, sample(e.Location))
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

// sessionLost is ErrSessionLost with the session that was lost.
type sessionLost struct{ session string }

func (e *sessionLost) Error() string   { return ErrSessionLost.Error() }
func (e *sessionLost) Is(t error) bool { return t == ErrSessionLost }

func notSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }

const maxSample = 200

// sample shows a server's text: cut, quoted, with nothing a terminal would act on.
func sample(s string) string {
	if len(s) > maxSample {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(begin(s), "�"))
	}
	return fmt.Sprintf("%q", s)
}

// begin is how a text begins, without the word that the cut goes through: a scan
// would not know the half of a credential for one.
func begin(s string) string {
	if len(s) <= maxSample {
		return s
	}
	end := strings.LastIndexFunc(s[:maxSample], func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"'`,;:=&?/|<>{}[]()", r)
	})
	return s[:max(end, 0)]
}
