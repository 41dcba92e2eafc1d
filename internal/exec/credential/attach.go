package credential

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// placeholder is the name that templates use for the value of an action's slot.
const placeholder = "credential"

// Uses reports whether a header's template contains a credential.
func Uses(template string) bool {
	found, _ := agent.Placeholders(template)
	return slices.ContainsFunc(found, func(p agent.Placeholder) bool {
		return p.Name == placeholder || strings.HasPrefix(p.Name, placeholder+".")
	})
}

// Attach adds a slot's secret to a request that is otherwise complete: in the
// headers whose templates contain {credential} or {credential.FIELD}, or as
// Authorization: Bearer if there are no templates. fill returns the values of the
// other placeholders in these templates. A request to a host outside the secret's
// audience is not changed, and the error is a [*call.Refusal]. dev holds the
// development switches of the client that will send the request.
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

// expand fills a template in one pass, so placeholders inside inserted values are
// not expanded.
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
			b.WriteString(s.compact())
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

// Audience refuses a request unless it goes over https to a host that the slot
// allows and that the secret was set for.
func Audience(dev egress.Switches, req *http.Request, slot *agent.Slot, s Secret) error {
	host, err := destination(dev, req.URL, req.Host)
	if err != nil {
		return err
	}
	if !slot.Covers(host) {
		return call.Refuse(Stage, call.HostNotAllowed, "the credential %s may not be sent to %s", slot.Ref, diag.Quote(host))
	}
	if !s.allows(host) {
		r := call.Refuse(Stage, call.HostNotAllowed,
			"the credential %s was set before its slot allowed %s", slot.Ref, diag.Quote(host))
		r.Hint = "if the host is right, set the credential again: ambit secret set AGENT " + slot.Ref
		return r
	}
	return nil
}

// destination returns the host of an address, and refuses addresses that two
// parsers could read differently.
func destination(dev egress.Switches, u *url.URL, host string) (string, error) {
	if u.User == nil && u.Opaque == "" && (host == "" || host == u.Host) {
		if name, err := dev.Host(u); err == nil {
			return name, nil
		}
	}
	return "", call.Refuse(Stage, call.HostNotAllowed,
		"credentials are sent only over https, and only to the host in the address")
}
