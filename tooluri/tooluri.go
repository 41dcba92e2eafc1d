// Package tooluri parses and formats the pinned names of an agent's tools.
//
// A tool URI names the tool's server and the exact version of that server:
//
//	matrix://tool/mcp/<server-alias>/<tool-name>@<version>
//	matrix://tool/<namespace>/<tool-name>@<version>
//
// The first form names a tool on an MCP tool server, the second a native tool.
// The version is a pin: either a semantic version (2026.1.14) or the sha256 of
// the published package (sha256:<64 lower-case hex digits>). Without a pin the
// server could change after a person approved it, so [Parse] refuses such a name
// with [ErrUnpinnedTool]. Moving targets such as latest, next or 1.x are not pins
// and return ErrUnpinnedTool too. Every other text that is not of the two forms
// returns [ErrInvalidURI].
//
// Parsing and printing are exact inverses: for every u that Parse accepts,
// Parse(u.String()) is u, and a text that Parse accepts is what String prints.
// There is no escaping, no normalisation and no case folding, so two URIs name
// the same tool exactly when they are equal strings.
package tooluri

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnpinnedTool reports that a tool URI names no exact version.
	ErrUnpinnedTool = errors.New("tool URI is not pinned to a version")
	// ErrInvalidURI reports that a text is not a tool URI.
	ErrInvalidURI = errors.New("invalid tool URI")
)

// Scheme is the prefix of every tool URI.
const Scheme = "matrix://tool/"

// maxPart bounds each part of a URI. MCP asks tool names to stay within 128.
const maxPart = 128

// URI is a parsed tool URI.
type URI struct {
	// Server is the alias of an MCP tool server, empty for a native tool.
	Server string
	// Namespace is the namespace of a native tool, empty for a tool on a server.
	Namespace string
	// Name is the tool's own name.
	Name string
	// Pin is the exact version.
	Pin Pin
}

// Parse parses a tool URI. Its error wraps ErrUnpinnedTool or ErrInvalidURI.
func Parse(s string) (URI, error) {
	rest, ok := strings.CutPrefix(s, Scheme)
	if !ok {
		return URI{}, invalid(s, "it does not start with "+Scheme)
	}
	// The last @ splits: a version never contains one.
	body, version := rest, ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		body, version = rest[:at], rest[at+1:]
	}
	var u URI
	if server, ok := strings.CutPrefix(body, "mcp/"); ok {
		if u.Server, u.Name, ok = strings.Cut(server, "/"); !ok {
			return URI{}, invalid(s, "it names a server but no tool")
		}
		if !IsAlias(u.Server) {
			return URI{}, invalid(s, "the server alias may contain only a-z, 0-9, _ and -")
		}
	} else {
		if u.Namespace, u.Name, ok = strings.Cut(body, "/"); !ok || u.Namespace == "mcp" {
			return URI{}, invalid(s, "it must name mcp/<server>/<tool> or <namespace>/<tool>")
		}
		if !IsAlias(u.Namespace) {
			return URI{}, invalid(s, "the namespace may contain only a-z, 0-9, _ and -")
		}
	}
	if !IsName(u.Name) {
		return URI{}, invalid(s, "the tool name must be 1 to 128 of A-Z, a-z, 0-9, _, - and .")
	}
	pin, err := ParsePin(version)
	if err != nil {
		return URI{}, fmt.Errorf("%w: %q", err, clip(s))
	}
	u.Pin = pin
	return u, nil
}

// String returns the URI in the form that Parse accepts.
func (u URI) String() string {
	if u.Server != "" {
		return Scheme + "mcp/" + u.Server + "/" + u.Name + "@" + u.Pin.String()
	}
	return Scheme + u.Namespace + "/" + u.Name + "@" + u.Pin.String()
}

// Native reports whether the URI names a native tool.
func (u URI) Native() bool { return u.Namespace != "" }

// MarshalText returns the URI as a string, so that JSON contains it.
func (u URI) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText parses a URI and returns the errors of Parse.
func (u *URI) UnmarshalText(b []byte) error {
	v, err := Parse(string(b))
	if err == nil {
		*u = v
	}
	return err
}

// IsAlias reports whether s is valid as a server alias or a namespace.
func IsAlias(s string) bool {
	if s == "" || len(s) > maxPart {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// IsName reports whether s is a tool name by MCP's rules: 1 to 128 letters, digits,
// underscores, hyphens and dots.
func IsName(s string) bool {
	if s == "" || len(s) > maxPart {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i]) && s[i] != '_' && s[i] != '-' && s[i] != '.' {
			return false
		}
	}
	return true
}

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func invalid(s, why string) error {
	return fmt.Errorf("%w %q: %s", ErrInvalidURI, clip(s), why)
}

// clip keeps error texts short: a URI comes from outside and may be any size.
func clip(s string) string {
	const most = 160
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
