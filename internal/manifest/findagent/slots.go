package findagent

import (
	"maps"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// slot contains the properties of a credential slot that are needed to check actions.
type slot struct {
	hosts  []string
	json   bool
	scopes bool // whether the key of a service account is exchanged for a token
	used   bool
	at     doc.Value
}

// valueFields lists fields in which people write the credential itself by mistake.
var valueFields = []string{"value", "secret", "default", "token", "password"}

func (p *parser) readSlots(o *read.Object) []CredentialSlot {
	list := o.List("credential_slots", read.Optional)
	if list.Len() == 0 {
		return nil
	}
	p.slots = make(map[string]*slot, list.Len())
	slots := make([]CredentialSlot, 0, list.Len())
	var variables read.Seen
	for v := range list.Each() {
		s := p.readSlot(v)
		slots = append(slots, s)
		if s.Ref == "" {
			continue
		}
		if p.slots[s.Ref] != nil {
			p.Report(ruleDuplicateRef, v.Get("ref").Place(), "", "another slot already has the ref %s", diag.Quote(s.Ref))
			continue
		}
		p.slots[s.Ref] = &slot{hosts: s.AllowedHosts, json: s.Type == "json", scopes: len(s.Scopes) > 0, at: v.Get("ref")}
		name, at := s.Env, v.Get("env")
		if name == "" {
			name, at = upperSnake(s.Ref), v.Get("ref")
		}
		// Two slots must not use the same environment variable.
		if !variables.Add(name) {
			p.Report(ruleDuplicateEnv, at.Place(), "", "another slot already uses the environment variable %s", diag.Quote(name))
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
			p.Report(ruleRef, v.Get("ref").Place(), "", "%s is not a valid ref", diag.Quote(ref))
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
		p.Report(ruleAudienceMissing, p.missingAt(v, "allowed_hosts"), "",
			"the slot has no allowed_hosts, so its credential could be sent anywhere")
	} else {
		s.AllowedHosts = p.parseHosts(hosts)
	}
	s.Type, _ = o.Enum("type", read.Optional, slotTypes)
	if s.Scopes = o.Texts("scopes", read.Optional); len(s.Scopes) > 0 && s.Type != "json" {
		p.Report(ruleSlotScopes, v.Get("scopes").KeyPlace(), "", "the slot has scopes, but it is not of type json")
	}
	s.Description, _ = o.String("description", read.Optional)
	if required, ok := o.Bool("required", read.Optional); ok {
		s.Required = &required
	}
	for _, key := range valueFields {
		if value := o.Get(key, read.Optional); value.Ok() {
			at := value.Place()
			p.Source.Mask(at.Start, at.End)
			p.Report(ruleSlotValue, value.KeyPlace(), "", "the slot has %s, but a slot must not contain the credential itself",
				diag.Quote(key))
		}
	}
	o.Done()
	return s
}

// upperSnake converts a name to the name of an environment variable.
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

// unusedSlots reports the credential slots that no auth_ref names. If an auth_ref names a nonexistent slot, unusedSlots
// reports nothing, because that auth_ref was probably meant for the unused slot.
func (p *parser) unusedSlots(slots []CredentialSlot) {
	if p.dangling || p.kind == "" || p.kind == "code-bundle" {
		return
	}
	for _, declared := range slots {
		if s := p.slots[declared.Ref]; s != nil && !s.used {
			s.used = true // report a slot only once
			p.Report(ruleUnusedSlot, s.at.Place(), "", "no action uses the slot %s", diag.Quote(declared.Ref))
		}
	}
}

func names[T any](m map[string]*T) []string { return slices.Sorted(maps.Keys(m)) }
