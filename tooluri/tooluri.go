// Package tooluri parses and formats the pinned names of an agent's tools.
//
// A tool URI identifies a tool and its exact version. It has one of two forms:
//
//	matrix://tool/mcp/<server-alias>/<tool-name>@<version>
//	matrix://tool/<namespace>/<tool-name>@<version>
//
// The first form is for a tool on an MCP tool server. The second form is for a native tool. The version is a pin:
// either a semantic version (2026.1.14) or the SHA-256 digest of the published package (sha256:<64 lower-case hex
// digits>).
//
// Without a pin, a server could change after a person approved it. [Parse] therefore returns [ErrUnpinnedTool] if the
// version is missing. Versions such as latest, next and 1.x can mean a different package later, and cause the same
// error. For any other malformed string, Parse returns [ErrInvalidURI].
//
// Parse and [URI.String] are exact inverses: there is no escaping, no normalization and no case folding. Two URIs
// identify the same tool if and only if their strings are equal.
package tooluri

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnpinnedTool means that a tool URI has no exact version.
	ErrUnpinnedTool = errors.New("tool URI is not pinned to a version")
	// ErrInvalidURI means that a string is not a tool URI.
	ErrInvalidURI = errors.New("invalid tool URI")
)

// Scheme is the prefix of every tool URI.
const Scheme = "matrix://tool/"

// maxPart is the maximum length of each part of a URI. MCP recommends at most 128 characters for tool names.
const maxPart = 128

// URI is a parsed tool URI.
type URI struct {
	// Server is the alias of an MCP tool server. The alias is empty for a native tool.
	Server string
	// Namespace is the namespace of a native tool. It is empty for a tool on a server.
	Namespace string
	// Name is the name of the tool on its server or in its namespace.
	Name string
	// Pin is the exact version.
	Pin Pin
}

// Parse parses a tool URI. Its error wraps ErrUnpinnedTool or ErrInvalidURI.
func Parse(s string) (URI, error) {
	rest, ok := strings.CutPrefix(s, Scheme)
	if !ok {
		return URI{}, invalid(s, "the URI does not start with "+Scheme)
	}
	// The last @ starts the version, because a version never contains @.
	body, version := rest, ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		body, version = rest[:at], rest[at+1:]
	}
	var u URI
	if server, ok := strings.CutPrefix(body, "mcp/"); ok {
		if u.Server, u.Name, ok = strings.Cut(server, "/"); !ok {
			return URI{}, invalid(s, "the URI names a server but no tool")
		}
		if !IsAlias(u.Server) {
			return URI{}, invalid(s, "the server alias may contain only a-z, 0-9, _ and -")
		}
	} else {
		if u.Namespace, u.Name, ok = strings.Cut(body, "/"); !ok || u.Namespace == "mcp" {
			return URI{}, invalid(s, "the URI must contain mcp/<server>/<tool> or <namespace>/<tool>")
		}
		if !IsAlias(u.Namespace) {
			return URI{}, invalid(s, "the namespace may contain only a-z, 0-9, _ and -")
		}
	}
	if !IsName(u.Name) {
		return URI{}, invalid(s, "the tool name must have 1 to 128 characters from A-Z, a-z, 0-9, _, - and .")
	}
	pin, err := ParsePin(version)
	if err != nil {
		return URI{}, fmt.Errorf("%w: %q", err, clip(s))
	}
	u.Pin = pin
	return u, nil
}

// String formats the URI. Parse accepts the result.
func (u URI) String() string {
	if u.Server != "" {
		return Scheme + "mcp/" + u.Server + "/" + u.Name + "@" + u.Pin.String()
	}
	return Scheme + u.Namespace + "/" + u.Name + "@" + u.Pin.String()
}

// Native reports whether the URI identifies a native tool.
func (u URI) Native() bool { return u.Namespace != "" }

// MarshalText returns the same text as String. JSON therefore contains the URI as a string.
func (u URI) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText parses a URI. It returns the same errors as Parse.
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

// IsName reports whether MCP allows s as a tool name. A tool name has 1 to 128 letters, digits, underscores, hyphens
// and dots.
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

// clip shortens a URI for an error message. A URI in a manifest can have any length.
func clip(s string) string {
	const most = 160
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
