package findagent

import (
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// slot is what the rest of the manifest asks of a credential slot.
type slot struct {
	hosts []string
	json  bool
	used  bool
	at    doc.Value
}

func (s *slot) covers(host string) bool { return agent.Covers(s.hosts, host) }

// Fields under which people write the credential itself.
var valueFields = []string{"value", "secret", "default", "token", "password"}

func (p *parser) readSlots(o *read.Object) []CredentialSlot {
	list := o.List("credential_slots", read.Optional)
	if list.Len() == 0 {
		return nil
	}
	p.slots.grow(list.Len())
	slots := make([]CredentialSlot, 0, list.Len())
	var variables read.Seen
	for v := range list.Each() {
		s := p.readSlot(v)
		slots = append(slots, s)
		if s.Ref == "" {
			continue
		}
		if p.slots.get(s.Ref) != nil {
			p.Report(ruleDuplicateRef, v.Get("ref").Place(), "", "another slot already has the ref %s", diag.Quote(s.Ref))
			continue
		}
		p.slots.add(s.Ref, &slot{hosts: s.AllowedHosts, json: s.Type == "json", at: v.Get("ref")})
		name, at := s.Env, v.Get("env")
		if name == "" {
			name, at = upperSnake(s.Ref), v.Get("ref")
		}
		// No two slots may be filled from one environment variable.
		if !variables.Add(name) {
			p.Report(ruleDuplicateEnv, at.Place(), "", "another slot is already filled from %s", diag.Quote(name))
		}
	}
	return slots
}

func (p *parser) readSlot(v doc.Value) CredentialSlot {
	var s CredentialSlot
	o := p.Object(v)
	if ref, ok := o.String("ref", read.Required); ok {
		if isWord(ref, isLetter, isName) {
			s.Ref = ref
		} else {
			p.Report(ruleRef, v.Get("ref").Place(), "", "%s is not a ref", diag.Quote(ref))
		}
	}
	s.Label, _ = o.Text("label", read.Required)
	if env, ok := o.String("env", read.Optional); ok {
		if s.Env = env; !isUpperSnake(env) {
			hint := ""
			if upper := upperSnake(env); isUpperSnake(upper) {
				hint = "write " + diag.Quote(upper)
			}
			p.Report(ruleSlotEnv, v.Get("env").Place(), hint, "%s is not the name of an environment variable", diag.Quote(env))
		}
	}
	if hosts := o.Get("allowed_hosts", read.Optional); o.Ok() && (!hosts.Ok() || hosts.Is(doc.Array) && hosts.Len() == 0) {
		p.Report(ruleAudienceMissing, p.missing(v, "allowed_hosts"), "", "the slot has no allowed_hosts, so its credential would have no audience")
	} else {
		s.AllowedHosts = p.hosts(hosts)
	}
	s.Type, _ = o.Enum("type", read.Optional, slotTypes)
	s.Description, _ = o.String("description", read.Optional)
	if required, ok := o.Bool("required", read.Optional); ok {
		s.Required = &required
	}
	for _, key := range valueFields {
		if value := o.Get(key, read.Optional); value.Ok() {
			at := value.Place()
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleSlotValue, value.KeyPlace(), "", "the slot has %s, but a slot never holds the credential itself", diag.Quote(key))
		}
	}
	o.Done()
	return s
}

// upperSnake makes the name of an environment variable of another name.
func upperSnake(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z' || '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, s)
}

// unusedSlots reports the slots that no action refers to. After an auth_ref
// that names no slot, it may well be the one that was meant.
func (p *parser) unusedSlots() {
	if p.dangling || p.kind == "" || p.kind == "code-bundle" {
		return
	}
	for i, s := range p.slots.values {
		if !s.used {
			p.Report(ruleUnusedSlot, s.at.Place(), "", "no action uses the slot %s", diag.Quote(p.slots.names[i]))
		}
	}
}
