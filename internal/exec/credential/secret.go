// Package credential stores the secrets that agents need. Each secret is sent only to the hosts for which it was set.
//
// A [Secret] has a type and a list of hosts. Printing a Secret always prints a placeholder. Only [Secret.Reveal] and
// [Secret.Field] return the value, and their callers are easy to find.
//
// A [Vault] stores the secrets that people set. A vault is one file, encrypted with age. The vault's key is stored in
// the session's keyring if possible, and otherwise in a separate file. The keyring does not store the secrets
// themselves: a keyring cannot list its entries, limits the size of values, and can lose concurrent changes. Every
// program of the session can read the key from the keyring, but the key is useless without the vault file. If
// AMBIT_HOME is set, the key is stored in that folder, because AMBIT_HOME contains all of ambit's files.
//
// A secret belongs to an agent's name, which is the name of the agent's file. A secret does not belong to the id in
// the manifest, because anyone can copy an id. With each secret, the vault stores the id and the audience. The
// audience consists of the hosts and OAuth scopes that the credential slot had when the secret was set. If the
// manifest later allows more hosts, the new hosts do not get the secret. If it asks for more scopes, the key of a
// service account is not exchanged. If another agent takes the name, that agent does not get the secret. In these
// cases, a person must set the secret again.
//
// A [Source] looks for a secret in three places: in the vault, in ambit's environment variable ([EnvName]), and in
// the environment variable that the manifest names. If the vault cannot be read, the Source returns an error and does
// not try the environment.
//
// [Attach] adds a secret to a request as the last step. Attach refuses requests to hosts outside the secret's
// audience.
package credential

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Type is the type of a secret in a manifest.
type Type string

const (
	String Type = "string"
	Masked Type = "secret"
	JSON   Type = "json"
)

// maxValue is the maximum size of a value in bytes. The key of a service account has a few kilobytes.
const maxValue = 64 << 10

const hidden = "[secret]"

// Secret is a value that is never printed. The zero Secret has no value.
type Secret struct {
	// The content is inside a function to hide it from fmt. For unexported fields, fmt follows pointers and does not
	// call methods such as String.
	in func() content
}

type content struct {
	value string
	kind  Type
	hosts []string
	id    string // the manifest id of the agent for which the secret was set; if it is empty, any agent can use the secret
	token string // the access token for which the value was exchanged, as [Source.Token] describes

	// scopes are the scopes for which the key of a service account was set. If scoped is false, the key can be
	// exchanged for tokens with any scope.
	scopes []string
	scoped bool
}

// content returns the content of the secret. The zero Secret has empty content.
func (s Secret) content() content {
	if s.in == nil {
		return content{}
	}
	return s.in()
}

// New returns a secret that can be sent only to these hosts. If the list is empty, only the credential slot limits
// the hosts. An error from New does not contain the value.
func New(kind Type, value string, hosts []string) (Secret, error) {
	switch {
	case value == "":
		return Secret{}, errors.New("the value is empty")
	case len(value) > maxValue:
		return Secret{}, fmt.Errorf("the value has %d bytes; the limit is %d", len(value), maxValue)
	case !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0:
		return Secret{}, errors.New("the value is not UTF-8 text or contains a NUL byte")
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

// Of returns a copy of the secret. The copy is reserved for the agent with the given [ID]. A different agent with the
// same name does not get the copy.
func (s Secret) Of(id string) Secret {
	if s.in == nil {
		return s
	}
	c := s.in()
	c.id = id
	return Secret{func() content { return c }}
}

// ForScopes returns a copy of the secret that can be exchanged only for tokens with these scopes.
func (s Secret) ForScopes(scopes []string) Secret {
	if s.in == nil {
		return s
	}
	c := s.in()
	c.scopes, c.scoped = slices.Clone(scopes), true
	return Secret{func() content { return c }}
}

// ID returns the manifest id of the agent for which the secret was set. It is empty if any agent may use the secret.
func (s Secret) ID() string { return s.content().id }

// IsZero reports whether the Secret has no value.
func (s Secret) IsZero() bool { return s.in == nil }

// Reveal returns the value of the secret.
func (s Secret) Reveal() string { return s.content().value }

// whole returns the text that replaces {credential}: the value, or an access token that ambit got in exchange for the
// value. The second result is false for a JSON secret and for the key of a service account, because they must not be
// sent as a whole.
func (s Secret) whole() (string, bool) {
	c := s.content()
	if c.token != "" {
		return c.token, true
	}
	_, account := readAccount(c.value)
	return c.value, c.kind != JSON && !account
}

// Type returns the type of the secret.
func (s Secret) Type() Type { return s.content().kind }

// Hosts returns the hosts for which the secret was set. An empty list means any host.
func (s Secret) Hosts() []string { return slices.Clone(s.content().hosts) }

// allows reports whether the secret was set for a host.
func (s Secret) allows(host string) bool {
	hosts := s.content().hosts
	return s.in != nil && (len(hosts) == 0 || agent.Covers(hosts, host))
}

// Field returns the text of a field of a JSON secret. If no field has exactly this name, Field treats the dots in the
// name as a path into nested objects.
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

// String returns a placeholder instead of the value.
func (s Secret) String() string {
	if s.in == nil {
		return ""
	}
	return hidden
}

// GoString returns a placeholder instead of the value.
func (s Secret) GoString() string { return s.String() }

// Format prints a placeholder instead of the value.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalJSON returns a placeholder instead of the value.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// MarshalText returns a placeholder instead of the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns a placeholder instead of the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// placeholder is the name of the secret in header templates.
const placeholder = "credential"

// Uses reports whether a header template contains {credential} or {credential.FIELD}.
func Uses(template string) bool {
	found, _ := agent.Placeholders(template)
	return slices.ContainsFunc(found, func(p agent.Placeholder) bool {
		return p.Name == placeholder || strings.HasPrefix(p.Name, placeholder+".")
	})
}

// Attach adds the secret of a credential slot to a request that is otherwise complete.
//
// The templates are the headers that contain {credential} or {credential.FIELD}. Without templates, the secret is
// sent as Authorization: Bearer. A JSON secret is sent only in parts. The callback returns the values of all other
// placeholders.
//
// Attach returns a [*call.Refusal] if the request's host is outside the secret's audience. The request is then
// unchanged.
func Attach(
	dev egress.Switches, req *http.Request, slot *agent.Slot, s Secret,
	templates map[string]string, fill func(name string) (string, error),
) error {
	if err := Audience(dev, req, slot, s); err != nil {
		return err
	}
	if len(templates) == 0 {
		templates, fill = map[string]string{"Authorization": "Bearer {" + placeholder + "}"}, nil
	}
	filled := http.Header{}
	for name, template := range templates {
		value, err := expand(template, slot, s, fill)
		if err != nil {
			return err
		}
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return call.Refuse(Stage, call.CredentialMissing,
				"the credential %s cannot be sent in a header: it contains a line break or control character", slot.Ref)
		}
		filled.Set(name, value)
	}
	maps.Copy(req.Header, filled)
	return nil
}

// expand fills a header template in one pass. Placeholders inside inserted values are not replaced.
func expand(template string, slot *agent.Slot, s Secret, fill func(string) (string, error)) (string, error) {
	found, _ := agent.Placeholders(template)
	var b strings.Builder
	at := 0
	for _, p := range found {
		b.WriteString(template[at:p.Start])
		at = p.End
		field, isField := strings.CutPrefix(p.Name, placeholder+".")
		switch {
		case p.Name == placeholder:
			text, ok := s.whole()
			if !ok {
				r := call.Refuse(Stage, call.CredentialMissing, "the credential %s is a JSON document, "+
					"and the manifest does not name the field to send", slot.Ref)
				r.Hint = "ask the author of the manifest to name a field of the document, such as {credential.access_token}, " +
					"or to add scopes if the document is the key of a service account"
				return "", r
			}
			b.WriteString(text)
		case isField:
			text, ok := s.Field(field)
			if !ok {
				return "", call.Refuse(Stage, call.CredentialMissing,
					"the credential %s has no field %s", slot.Ref, diag.Quote(field))
			}
			b.WriteString(text)
		default:
			text, err := fill(p.Name)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		}
	}
	return b.String() + template[at:], nil
}

// Audience returns an error if the secret must not be sent with a request. The request must use https. The credential
// slot must allow the request's host now, and must have allowed the host when the secret was set.
func Audience(dev egress.Switches, req *http.Request, slot *agent.Slot, s Secret) error {
	host, err := destination(dev, req.URL, req.Host)
	if err != nil {
		return err
	}
	if !slot.Covers(host) {
		return call.Refuse(Stage, call.HostNotAllowed, "the credential %s must not be sent to %s", slot.Ref, diag.Quote(host))
	}
	if !s.allows(host) {
		r := call.Refuse(Stage, call.HostNotAllowed,
			"when the credential %s was set, its slot did not allow the host %s", slot.Ref, diag.Quote(host))
		r.Hint = "if the host is right, set the credential again; run: ambit secret set AGENT " + slot.Ref
		return r
	}
	return nil
}

// destination returns the host of a request. It refuses URLs without https, and URLs that two parsers could read
// differently.
func destination(dev egress.Switches, u *url.URL, host string) (string, error) {
	if u.User == nil && u.Opaque == "" && (host == "" || host == u.Host) {
		if name, err := dev.Host(u); err == nil {
			return name, nil
		}
	}
	return "", call.Refuse(Stage, call.HostNotAllowed,
		"credentials are sent only over https, and only to the host in the URL")
}
