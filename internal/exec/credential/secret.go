// Package credential stores the secrets that agents need, and sends each secret
// only to the hosts it was set for.
//
// A [Secret] has a type and, if they are known, the hosts it may be sent to. All
// ways of printing it show a placeholder. Only [Secret.Reveal] and [Secret.Field]
// return the value, and both are easy to search for.
//
// Secrets that people set are stored in a [Vault]: one file, encrypted with age.
// Its key is in the session's keyring if that works, and otherwise in a separate
// file. A keyring alone would not do: it has no list of its entries, it limits the
// size of values, and concurrent changes can be lost. Any program of the session
// can ask the keyring, but without the vault file the key is of no use. AMBIT_HOME
// moves all of ambit's files, so if it is set, the key is stored there too.
//
// A secret belongs to the name under which an agent runs, which is the name of its
// file. It does not belong to the id in the manifest, because anyone can copy an
// id. The vault also stores that id and the audience: the hosts that the slot
// allowed when the secret was set. If the manifest later allows more hosts, or
// another agent gets the name, the secret is not used until it is set again.
//
// A [Source] looks for a secret in the vault, then in the environment under
// ambit's variable ([EnvName]), then under the variable that the manifest names.
// A vault that cannot be read is an error; the environment is not tried then.
//
// [Attach] adds a secret to a request as the last step, and only if the request
// goes to the secret's audience.
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

const (
	String Type = "string"
	Masked Type = "secret"
	JSON   Type = "json"
)

// maxValue bounds a value; a service account's key is a few kilobytes.
const maxValue = 64 << 10

// hidden is printed in place of a value.
const hidden = "[secret]"

// Secret is a value that is never printed. The zero Secret has no value.
type Secret struct {
	// A function, because fmt prints unexported fields without calling their
	// methods, and follows pointers in them.
	in func() content
}

type content struct {
	value string
	kind  Type
	hosts []string
	id    string // of the manifest that it was set for; empty for any of the name
}

// content returns the zero value for the zero Secret.
func (s Secret) content() content {
	if s.in == nil {
		return content{}
	}
	return s.in()
}

// New makes a secret for some hosts. Without hosts, the slot alone decides where
// it may be sent. The error does not contain the value.
func New(kind Type, value string, hosts []string) (Secret, error) {
	switch {
	case value == "":
		return Secret{}, errors.New("the value is empty")
	case len(value) > maxValue:
		return Secret{}, fmt.Errorf("the value has %d bytes; the limit is %d", len(value), maxValue)
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
		return Secret{}, fmt.Errorf("unknown type of secret %q", kind)
	}
	c := content{value: value, kind: kind, hosts: slices.Clone(hosts)}
	return Secret{func() content { return c }}, nil
}

// Of returns the secret bound to one manifest, by its [ID]. Another agent under
// the same name does not get it.
func (s Secret) Of(id string) Secret {
	if s.in == nil {
		return s
	}
	c := s.in()
	c.id = id
	return Secret{func() content { return c }}
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.in == nil }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.content().value }

// compact returns the value as it is sent: JSON without white space.
func (s Secret) compact() string {
	v := jsontext.Value(s.Reveal())
	if s.Type() != JSON || v.Compact() != nil {
		return s.Reveal()
	}
	return string(v)
}

// Type returns the shape of the value.
func (s Secret) Type() Type { return s.content().kind }

// Hosts returns the hosts that the secret was set for; none means any.
func (s Secret) Hosts() []string { return slices.Clone(s.content().hosts) }

// allows reports whether the secret was set for a host.
func (s Secret) allows(host string) bool {
	hosts := s.content().hosts
	return s.in != nil && (len(hosts) == 0 || agent.Covers(hosts, host))
}

// Field returns the text of a field of a JSON secret. A name with dots is a path
// into objects, unless a field has exactly that name.
func (s Secret) Field(name string) (string, bool) {
	if s.Type() != JSON {
		return "", false
	}
	return field(jsontext.Value(s.Reveal()), name)
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

// scalar returns the text of a JSON string, number or boolean.
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

// String hides the value.
func (s Secret) String() string {
	if s.in == nil {
		return ""
	}
	return hidden
}

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// Format hides the value.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalJSON hides the value.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// MarshalText hides the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
