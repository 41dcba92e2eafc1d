package credential

import (
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// placeholder is the name that stands for the value of an action's slot.
const placeholder = "credential"

// Uses reports whether a header's template holds a credential.
func Uses(template string) bool {
	found, _ := agent.Placeholders(template)
	for _, p := range found {
		if isCredential(p.Name) {
			return true
		}
	}
	return false
}

func isCredential(name string) bool {
	return name == placeholder || strings.HasPrefix(name, placeholder+".")
}

// Attach puts a slot's secret into a request that is complete otherwise: into
// the headers whose templates hold {credential} or {credential.FIELD}, or as
// Authorization: Bearer if there are none. What else stands in these templates
// is filled in by fill. A request that does not go to the secret's audience
// stays as it is, and the error is a [*call.Refusal]. The development switches
// are those of the client that will send it.
func Attach(dev egress.Switches, req *http.Request, slot *agent.Slot, s Secret, templates map[string]string, fill func(name string) (string, error)) error {
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
			return call.Refuse(Stage, call.CredentialMissing, "the credential %s cannot be sent in a header: it has a line break or control character", slot.Ref)
		}
		filled.Set(name, value)
	}
	for name, values := range filled {
		req.Header[name] = values
	}
	return nil
}

// expand fills a template in one pass, so that nothing that is put in is read
// as a placeholder.
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
			b.WriteString(s.line())
		case isField:
			text, ok := s.Field(field)
			if !ok {
				return "", call.Refuse(Stage, call.CredentialMissing, "the credential %s has no field %s", slot.Ref, diag.Quote(field))
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

// Audience refuses a request that does not go, over https, to a host that the
// slot allows and that the secret was set for.
func Audience(dev egress.Switches, req *http.Request, slot *agent.Slot, s Secret) error {
	host, err := destination(dev, req.URL, req.Host)
	if err != nil {
		return err
	}
	if !slot.Covers(host) {
		return call.Refuse(Stage, call.HostNotAllowed, "the credential %s may not be sent to %s", slot.Ref, diag.Quote(host))
	}
	if !s.meant(host) {
		r := call.Refuse(Stage, call.HostNotAllowed, "the credential %s was set before its slot allowed %s", slot.Ref, diag.Quote(host))
		r.Hint = "if the host is right, set it again: ambit secret set AGENT " + slot.Ref
		return r
	}
	return nil
}

// destination is the one host that every reader finds in an address.
func destination(dev egress.Switches, u *url.URL, host string) (string, error) {
	if u.User == nil && u.Opaque == "" && (host == "" || host == u.Host) {
		if name, err := dev.Host(u); err == nil {
			return name, nil
		}
	}
	return "", call.Refuse(Stage, call.HostNotAllowed, "a credential is sent over https to the host that the address names, and nowhere else")
}
