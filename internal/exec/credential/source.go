package credential

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// Stage is where calls for want of a credential are refused.
const Stage = "act"

// Own is the name under which ambit keeps what is its own. No agent gets anything
// that is kept for a name, if that is its name.
const Own = "ambit"

// Source finds the secrets of an agent.
type Source struct {
	// Agent is the name under which the agent acts: that of its file, never what
	// a manifest says of itself. Without one nothing is found that is kept for a
	// name, only variables that the manifest names.
	Agent string
	// Vault is asked first; nil if there is none.
	Vault Vault
	// Environ looks into the environment; nil stands for that of this process.
	Environ func(name string) (string, bool)
	// OnError is told of a vault that cannot be read where no error can be
	// returned; nil ignores it.
	OnError func(error)

	given *given // nil remembers nothing
}

// Places where a secret can be.
const (
	InVault       = "vault"
	InEnvironment = "environment"
)

// For is the same source for the agent that acts under a name. It remembers what
// it hands out, for [Source.Known].
func (s *Source) For(name string) *Source {
	one := *s
	one.Agent = name
	one.given = &given{byRef: map[string][][]Secret{}}
	return &one
}

// named reports whether there may be something that is kept for the agent's name.
func (s *Source) named() bool { return s.Agent != "" && s.Agent != Own }

// ID is what a manifest calls its agent.
func ID(a *agent.Agent) string { return strings.TrimPrefix(a.ID, "matrix://agent/") }

// EnvName is the environment variable that fills a ref of an agent:
// AMBIT_SECRET_<AGENT>__<REF>, in capitals, with _ for what else is there. Of all
// agents whose names give one variable only that with a plain name is given it.
func EnvName(agentName, ref string) string {
	return "AMBIT_SECRET_" + capitals(agentName) + "__" + capitals(ref)
}

// plain reports whether a name is of small letters and digits, with single hyphens
// between them. No two such names give one variable: its first __ ends the name.
func plain(name string) bool {
	for part := range strings.SplitSeq(name, "-") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return false
		}
	}
	return true
}

func capitals(s string) string {
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

// Wanted is a secret that a manifest asks for.
type Wanted struct {
	Ref      string
	Type     Type
	Env      string
	Hosts    []string
	Required bool
}

// Wants lists the secrets that an agent's manifest asks for: its slots, and
// what its servers' settings refer to.
func Wants(a *agent.Agent) []Wanted {
	var all []Wanted
	for _, s := range a.Slots {
		all = append(all, Wanted{s.Ref, Type(s.Type), s.Env, s.Hosts, s.Required})
	}
	for i := range a.Servers {
		all = wantedBy(all, a, &a.Servers[i])
	}
	return all
}

// wantedBy adds what a server refers to. A program may send it anywhere, so
// that its audience is not known.
func wantedBy(all []Wanted, a *agent.Agent, s *agent.Server) []Wanted {
	one := agent.Agent{Servers: []agent.Server{*s}}
	for _, secret := range one.Reach().Secrets {
		at := slices.IndexFunc(all, func(w Wanted) bool { return w.Ref == secret.Name })
		switch {
		case at < 0:
			all = append(all, Wanted{secret.Name, Masked, secret.Name, secret.Hosts, true})
		case a.Slot(secret.Name) != nil:
			// A slot says more.
		case len(all[at].Hosts) == 0 || len(secret.Hosts) == 0:
			all[at].Hosts = nil
		default:
			for _, h := range secret.Hosts {
				if !slices.Contains(all[at].Hosts, h) {
					all[at].Hosts = append(slices.Clone(all[at].Hosts), h)
				}
			}
		}
	}
	return all
}

// Find looks for a secret that an agent wants, and says where it was: in the
// vault or in the environment, there with the variable's name. Empty is nowhere.
func (s *Source) Find(a *agent.Agent, w Wanted) (secret Secret, where, variable string, err error) {
	if s.Vault != nil && s.named() {
		secret, ok, err := s.Vault.Get(s.Agent, w.Ref)
		if err != nil {
			return Secret{}, "", "", err
		}
		if ok && isFor(secret, a) {
			return secret, InVault, "", nil
		}
	}
	for _, variable := range []string{s.ours(w.Ref), theirs(w.Env)} {
		if variable == "" {
			continue
		}
		if value := s.environ(variable); value != "" {
			secret, err := New(w.Type, value, nil)
			if err != nil {
				return Secret{}, "", "", fmt.Errorf("%s: %w", variable, err)
			}
			return secret, InEnvironment, variable, nil
		}
	}
	return Secret{}, "", "", nil
}

// environ is the value of a variable, empty if there is none.
func (s *Source) environ(variable string) string {
	look := s.Environ
	if look == nil {
		look = os.LookupEnv
	}
	value, ok := look(variable)
	if !ok {
		return ""
	}
	return value
}

// isFor reports whether a secret that is kept for an agent's name was set for
// that agent, or for whichever has the name.
func isFor(s Secret, a *agent.Agent) bool { return s.of() == "" || s.of() == ID(a) }

// ours is the variable that fills a ref of the agent; empty if there is none.
func (s *Source) ours(ref string) string {
	if !s.named() || !plain(s.Agent) {
		return ""
	}
	return EnvName(s.Agent, ref)
}

// Former tells of a secret that an agent does not get although it could seem to
// be its own: one that was set for another agent of its name, or that is kept
// under the id alone, as it once was, or that is in a variable which is another
// name's. Empty if there is none.
func (s *Source) Former(a *agent.Agent, ref string) string {
	if !s.named() {
		return ""
	}
	if variable := EnvName(s.Agent, ref); !plain(s.Agent) && s.environ(variable) != "" {
		return fmt.Sprintf("the variable %s is not read for %s, since an agent of another name could have the same: only names of small letters, digits and single hyphens have a variable", variable, s.Agent)
	}
	if s.Vault == nil {
		return ""
	}
	if kept, ok, err := s.Vault.Get(s.Agent, ref); err == nil && ok && !isFor(kept, a) {
		return fmt.Sprintf("the one that is kept for %s was set for another agent, %s", s.Agent, kept.of())
	}
	if id := ID(a); id != s.Agent && id != Own {
		if _, ok, err := s.Vault.Get(id, ref); err == nil && ok {
			return fmt.Sprintf("the one that is kept for %s is not used here, since this agent is %s and any manifest can call itself %s", id, s.Agent, id)
		}
	}
	return ""
}

// theirs is a variable that a manifest may name: not one of ours, which may hold
// the secret of another agent.
func theirs(variable string) string {
	if strings.HasPrefix(strings.ToUpper(variable), "AMBIT_") {
		return ""
	}
	return variable
}

// Slot is the secret of a slot. An error is a [*call.Refusal].
func (s *Source) Slot(a *agent.Agent, slot *agent.Slot) (Secret, error) {
	secret, where, _, err := s.Find(a, Wanted{slot.Ref, Type(slot.Type), slot.Env, slot.Hosts, slot.Required})
	if err != nil {
		return Secret{}, call.Refuse(Stage, call.CredentialMissing, "the credential %s cannot be read: %v", slot.Ref, err)
	}
	if where == "" {
		r := call.Refuse(Stage, call.CredentialMissing, "the credential %s (%s) is not set", slot.Ref, slot.Label)
		r.Hint = s.howToSet(a, slot.Ref, theirs(slot.Env))
		return Secret{}, r
	}
	s.given.keep(a, slot.Ref, secret)
	return secret, nil
}

// howToSet is what to do about a secret that is missing.
func (s *Source) howToSet(a *agent.Agent, ref, variable string) string {
	if s.Agent == Own {
		return "what is kept for ambit is its own, and an agent of that name gets none of it: call the agent's file something else"
	}
	variable = cmp.Or(variable, s.ours(ref))
	if variable == "" && s.Agent == "" {
		variable = EnvName("AGENT", ref)
	}
	hint := fmt.Sprintf("store it: ambit secret set %s %s", cmp.Or(s.Agent, "AGENT"), ref)
	if variable != "" {
		hint += ", or set the environment variable " + variable
	}
	if former := s.Former(a, ref); former != "" {
		hint += "; " + former
	}
	return hint
}

// Serves reports whether a tool is shown to clients: not while it lacks a
// credential that the agent can do without. A tool that lacks one that is
// required is shown, and refuses.
func (s *Source) Serves(a *agent.Agent, t *agent.Tool) bool {
	h, ok := t.Binding.(agent.HTTP)
	if !ok || h.AuthRef == "" {
		return true
	}
	slot := a.Slot(h.AuthRef)
	if slot == nil || slot.Required {
		return true
	}
	_, err := s.Slot(a, slot)
	return err == nil
}

// Lookup finds what $env:NAME stands for in the settings of an agent's servers.
// A secret that was set for some hosts is not given to a server elsewhere.
func (s *Source) Lookup(a *agent.Agent) func(name string) (string, bool) {
	wants := Wants(a)
	return func(name string) (string, bool) {
		w := Wanted{Ref: name, Type: Masked, Env: name}
		if at := slices.IndexFunc(wants, func(w Wanted) bool { return w.Ref == name }); at >= 0 {
			w = wants[at]
			w.Env = name
		}
		secret, where, _, err := s.Find(a, w)
		if err == nil && where != "" && !secret.covers(w.Hosts) {
			err = fmt.Errorf("%s was set for other hosts than its server's: set it again with ambit secret set %s %s", name, cmp.Or(s.Agent, "AGENT"), name)
		}
		if err != nil {
			s.tell(err)
			return "", false
		}
		if where != "" && !slices.Contains(agent.PlainEnv, name) {
			s.given.keep(a, name, secret)
		}
		return secret.Reveal(), where != ""
	}
}

// covers reports whether the secret was set for all of some hosts. None of
// them stands for anywhere.
func (s Secret) covers(hosts []string) bool {
	if len(s.Hosts()) == 0 {
		return true
	}
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return !s.meant(h) })
}

func (s *Source) tell(err error) {
	if s.OnError != nil {
		s.OnError(err)
	}
}

// Known are the values of secrets that an agent wants, for the scan of what
// leaves, and all that were handed out before. If nothing has changed, it tells
// the same in the same order.
func (s *Source) Known(a *agent.Agent, wants []Wanted) ([]Secret, error) {
	var known []Secret
	var failed error
	for _, w := range wants {
		secret, where, _, err := s.Find(a, w)
		if err != nil || where == "" {
			failed = errors.Join(failed, err)
			continue
		}
		known = append(known, parts(a, w.Ref, secret)...)
	}
	return append(known, s.given.all()...), failed
}

// parts are a secret and, of one that is JSON, also the fields that are sent, and
// those that look secret.
func parts(a *agent.Agent, ref string, secret Secret) []Secret {
	all := []Secret{secret}
	if secret.Type() != JSON {
		return all
	}
	sent := sentFields(a)
	leaves(jsontext.Value(secret.Reveal()), "", func(path, key, text string) {
		if sent[ref+"."+path] || secretlike.Name(key) || secretlike.Find(text).Found() {
			if part, err := New(Masked, text, secret.Hosts()); err == nil {
				all = append(all, part)
			}
		}
	})
	return all
}

// sentFields are the fields of secrets that some header holds, as REF.FIELD.
func sentFields(a *agent.Agent) map[string]bool {
	sent := map[string]bool{}
	for i := range a.Tools {
		h, _ := a.Tools[i].Binding.(agent.HTTP)
		for _, template := range h.Headers {
			found, _ := agent.Placeholders(template)
			for _, p := range found {
				if field, ok := strings.CutPrefix(p.Name, placeholder+"."); ok {
					sent[h.AuthRef+"."+field] = true
				}
			}
		}
	}
	return sent
}

// leaves visits the texts and numbers inside a JSON value, in the order of their
// names.
func leaves(v jsontext.Value, path string, visit func(path, key, text string)) {
	switch v.Kind() {
	case '{':
		var members map[string]jsontext.Value
		if json.Unmarshal(v, &members) != nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(members)) {
			m := members[key]
			at := strings.TrimPrefix(path+"."+key, ".")
			if text, ok := scalar(m); ok {
				visit(at, key, text)
			} else {
				leaves(m, at, visit)
			}
		}
	case '[':
		var items []jsontext.Value
		if json.Unmarshal(v, &items) != nil {
			return
		}
		for _, m := range items {
			if text, ok := scalar(m); ok {
				visit(path, "", text)
			} else {
				leaves(m, path, visit)
			}
		}
	}
}
