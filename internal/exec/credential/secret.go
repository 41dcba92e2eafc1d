// Package credential keeps the secrets that agents need, and sends each only
// where it may go.
//
// A [Secret] is made with its type and, where they are known, the hosts that it
// is for. It shows itself in no output, whatever prints it; [Secret.Reveal] and
// [Secret.Field] are the only ways to its value, and easy to search for.
//
// Secrets that people set lie in a [Vault]: one file, encrypted with age, whose
// key lies in the session's keyring if there is one that works, and otherwise
// in a file of its own. One file keeps all that a keyring does not: a list of
// what is set, values of any size, and changes by two processes at once of which
// none is lost. And a program that can talk to the keyring, as any program of
// the session can, still lacks the file. AMBIT_HOME moves everything that ambit
// keeps, so with it set the key is kept there too.
//
// A secret is kept for the name under which an agent acts, which is that of its
// file, and not for the id that its manifest gives itself: anybody can copy that.
// The vault seals the id too, and the secret's audience: the hosts that the slot
// allowed when the secret was set. A manifest that allows more hosts later, or
// another one that has got the name, does not get it; somebody has to set it
// again.
//
// A [Source] finds a secret: in the vault, else in the environment under a name
// of ours ([EnvName]), else under the name that the manifest gives. A vault that
// cannot be read is an error; nothing else is tried then.
//
// [Attach] puts a secret into a request, last of all, and only if the request as
// it is goes to the secret's audience.
package credential

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
)

// Type is the shape of a secret's value.
type Type string

// The types.
const (
	String Type = "string"
	Masked Type = "secret"
	JSON   Type = "json"
)

// maxValue bounds a value; a service account's key is a few kilobytes.
const maxValue = 64 << 10

// hidden is what a secret shows of itself.
const hidden = "[secret]"

// Secret is a value that is not shown. The zero Secret is none.
type Secret struct {
	// A function, since printing a struct goes around the methods of its
	// unexported fields, and follows even pointers there.
	in func() *inside
}

type inside struct {
	value string
	kind  Type
	hosts []string
	id    string // of the agent that it was set for; empty for any of its name
}

// New makes a secret for some hosts; none leaves that to the slot. An error does
// not hold the value.
func New(kind Type, value string, hosts []string) (Secret, error) {
	switch {
	case value == "":
		return Secret{}, errors.New("the value is empty")
	case len(value) > maxValue:
		return Secret{}, fmt.Errorf("the value has %d bytes; at most %d are kept", len(value), maxValue)
	case !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0:
		return Secret{}, errors.New("the value is not text")
	}
	switch kind {
	case String, Masked:
	case JSON:
		if !jsontext.Value(value).IsValid() {
			return Secret{}, errors.New("the value is not valid JSON")
		}
	default:
		return Secret{}, fmt.Errorf("there is no type %q of secrets", kind)
	}
	in := &inside{value: value, kind: kind, hosts: slices.Clone(hosts)}
	return Secret{func() *inside { return in }}, nil
}

// Of is the secret for one agent, by the [ID] of its manifest. It goes to no
// other one that acts under the same name.
func (s Secret) Of(id string) Secret {
	if s.in == nil {
		return s
	}
	in := *s.in()
	in.id = id
	return Secret{func() *inside { return &in }}
}

// of is the id that the secret was set for.
func (s Secret) of() string {
	if s.in == nil {
		return ""
	}
	return s.in().id
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.in == nil }

// Reveal is the value itself.
func (s Secret) Reveal() string {
	if s.in == nil {
		return ""
	}
	return s.in().value
}

// line is the value as it is sent; JSON without its layout.
func (s Secret) line() string {
	v := jsontext.Value(s.Reveal())
	if s.Type() != JSON || v.Compact() != nil {
		return s.Reveal()
	}
	return string(v)
}

// Type is the shape of the value.
func (s Secret) Type() Type {
	if s.in == nil {
		return ""
	}
	return s.in().kind
}

// Hosts are those that the secret was set for; none if that was not said.
func (s Secret) Hosts() []string {
	if s.in == nil {
		return nil
	}
	return slices.Clone(s.in().hosts)
}

// meant reports whether the secret was set for a host.
func (s Secret) meant(host string) bool {
	return s.in != nil && (len(s.in().hosts) == 0 || agent.Covers(s.in().hosts, host))
}

// Field is the text of a field of a JSON secret; a name with dots leads into
// objects, unless there is a field of that very name.
func (s Secret) Field(name string) (string, bool) {
	if s.in == nil || s.in().kind != JSON {
		return "", false
	}
	return field(jsontext.Value(s.in().value), name)
}

func field(object jsontext.Value, name string) (string, bool) {
	var members map[string]jsontext.Value
	if object.Kind() != '{' || json.Unmarshal(object, &members) != nil {
		return "", false
	}
	if v, ok := members[name]; ok {
		return scalar(v)
	}
	first, rest, ok := strings.Cut(name, ".")
	if !ok {
		return "", false
	}
	return field(members[first], rest)
}

// scalar is the text of a JSON value that is one.
func scalar(v jsontext.Value) (string, bool) {
	v = jsontext.Value(bytes.TrimSpace(v))
	switch v.Kind() {
	case '"':
		var text string
		err := json.Unmarshal(v, &text)
		return text, err == nil
	case '0', 't', 'f':
		return string(v), true
	}
	return "", false
}

// String does not tell the value.
func (s Secret) String() string {
	if s.in == nil {
		return ""
	}
	return hidden
}

// GoString does not tell the value.
func (s Secret) GoString() string { return s.String() }

// Format does not tell the value.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalJSON does not tell the value.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// MarshalText does not tell the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue does not tell the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
