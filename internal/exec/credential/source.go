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

// Stage is the stage of the refusals for missing credentials.
const Stage = "act"

// Own is the name under which ambit stores its own secrets. An agent with that
// name gets no stored secrets.
const Own = "ambit"

// Source finds the secrets of an agent.
type Source struct {
	// Agent is the name under which the agent runs: the name of its file, never a
	// name from the manifest. Without it, only the environment variables that the
	// manifest names are read.
	Agent string
	// Vault is read first; nil if there is none.
	Vault Vault
	// Environ reads the environment; nil reads that of this process.
	Environ func(name string) (string, bool)
	// OnError receives errors of the vault where none can be returned; nil ignores
	// them.
	OnError func(error)

	issued *issued // nil remembers nothing
}

// Where a secret was found.
const (
	InVault       = "vault"
	InEnvironment = "environment"
)

// For returns a copy of the source for the agent with this name. The copy remembers
// the secrets that it hands out, for [Source.Known].
func (s *Source) For(name string) *Source {
	c := *s
	c.Agent = name
	c.issued = &issued{byRef: map[string][][]Secret{}}
	return &c
}

// named reports whether secrets can be stored for the agent's name.
func (s *Source) named() bool { return s.Agent != "" && s.Agent != Own }

// ID returns the agent id in a manifest.
func ID(a *agent.Agent) string { return strings.TrimPrefix(a.ID, "matrix://agent/") }

// EnvName returns the environment variable for a ref of an agent:
// AMBIT_SECRET_<AGENT>__<REF>, in capitals, with _ for all characters other than
// letters and digits. Several names can map to one variable; only the agent whose
// name is plain reads it.
func EnvName(agentName, ref string) string {
	return "AMBIT_SECRET_" + capitals(agentName) + "__" + capitals(ref)
}

// plain reports whether a name has only small letters and digits, with single
// hyphens between them. Two plain names never map to one variable: the first __
// ends the name.
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

// Wanted is a secret that a manifest refers to.
type Wanted struct {
	Ref      string
	Type     Type
	Env      string
	Hosts    []string
	Required bool
}

// Wants lists the secrets that an agent's manifest refers to, in its slots and in
// the settings of its servers.
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

// wantedBy adds the secrets that a server's settings refer to. A local program may
// send a secret anywhere, so its audience is unknown.
func wantedBy(all []Wanted, a *agent.Agent, s *agent.Server) []Wanted {
	one := agent.Agent{Servers: []agent.Server{*s}}
	for _, secret := range one.Reach().Secrets {
		at := slices.IndexFunc(all, func(w Wanted) bool { return w.Ref == secret.Name })
		switch {
		case at < 0:
			all = append(all, Wanted{secret.Name, Masked, secret.Name, secret.Hosts, true})
		case a.Slot(secret.Name) != nil:
			// The slot is more specific.
		case len(all[at].Hosts) == 0 || len(secret.Hosts) == 0:
			all[at].Hosts = nil
		default:
			known := func(h string) bool { return slices.Contains(all[at].Hosts, h) }
			all[at].Hosts = slices.Concat(all[at].Hosts, slices.DeleteFunc(slices.Clone(secret.Hosts), known))
		}
	}
	return all
}

// Find looks for a secret. where is [InVault], [InEnvironment], or empty if it is
// not set; variable is the name of the environment variable.
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

// environ returns the value of a variable, or the empty string.
func (s *Source) environ(variable string) string {
	if s.Environ == nil {
		return os.Getenv(variable)
	}
	value, _ := s.Environ(variable)
	return value
}

// isFor reports whether a secret stored for an agent's name was set for this agent,
// or for any agent with the name.
func isFor(s Secret, a *agent.Agent) bool { return s.content().id == "" || s.content().id == ID(a) }

// ours returns ambit's variable for a ref of the agent; empty if it has none.
func (s *Source) ours(ref string) string {
	if !s.named() || !plain(s.Agent) {
		return ""
	}
	return EnvName(s.Agent, ref)
}

// Former explains why an agent does not get a secret that looks like its own: the
// secret was set for an earlier agent with the same name, or is stored under the id
// as in version 1, or is in a variable that belongs to another name. It is empty if
// there is no such secret.
func (s *Source) Former(a *agent.Agent, ref string) string {
	if !s.named() {
		return ""
	}
	if variable := EnvName(s.Agent, ref); !plain(s.Agent) && s.environ(variable) != "" {
		return fmt.Sprintf("%s is not read for %s, because another name maps to the same variable: "+
			"only names of small letters, digits and single hyphens have a variable", variable, s.Agent)
	}
	if s.Vault == nil {
		return ""
	}
	if kept, ok, err := s.Vault.Get(s.Agent, ref); err == nil && ok && !isFor(kept, a) {
		return fmt.Sprintf("the stored secret belongs to an earlier agent named %s, with the id %s",
			s.Agent, kept.content().id)
	}
	if id := ID(a); id != s.Agent && id != Own {
		if _, ok, err := s.Vault.Get(id, ref); err == nil && ok {
			return fmt.Sprintf("the secret stored for %[1]s is not used, "+
				"because this agent's name is %[2]s and any manifest can claim the id %[1]s", id, s.Agent)
		}
	}
	return ""
}

// theirs returns the variable that a manifest names, or nothing if it is one of
// ambit's: those may hold the secret of another agent.
func theirs(variable string) string {
	if strings.HasPrefix(strings.ToUpper(variable), "AMBIT_") {
		return ""
	}
	return variable
}

// Slot returns the secret of a slot. The error is a [*call.Refusal].
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
	s.issued.add(a, slot.Ref, secret)
	return secret, nil
}

// howToSet returns the hint for a missing secret.
func (s *Source) howToSet(a *agent.Agent, ref, variable string) string {
	if s.Agent == Own {
		return "the name ambit is reserved for ambit's own secrets: rename the agent's file"
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

// Serves reports whether clients see a tool. A tool whose optional credential is
// missing is hidden. A tool whose required credential is missing is shown and
// refuses its calls.
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

// Lookup returns a function that resolves $env:NAME in the settings of an agent's
// servers. A secret that was set for certain hosts is not passed to a server on
// another host.
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
			err = fmt.Errorf("%[1]s was set for other hosts than its server's: set it again with ambit secret set %[2]s %[1]s",
				name, cmp.Or(s.Agent, "AGENT"))
		}
		if err != nil {
			if s.OnError != nil {
				s.OnError(err)
			}
			return "", false
		}
		if where != "" && !slices.Contains(agent.PlainEnv, name) {
			s.issued.add(a, name, secret)
		}
		return secret.Reveal(), where != ""
	}
}

// covers reports whether the secret was set for all of these hosts. Without hosts,
// it may be sent anywhere.
func (s Secret) covers(hosts []string) bool {
	if len(s.content().hosts) == 0 {
		return true
	}
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return !s.allows(h) })
}

// Known returns the secrets that output is scanned for: the current values of these
// secrets and all values that were handed out. The order is stable.
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
	return append(known, s.issued.all()...), failed
}

// parts returns a secret and, if it is JSON, also its fields that are sent or look
// secret.
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

// sentFields returns the fields of secrets that headers contain, as REF.FIELD.
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

// leaves visits the scalars inside a JSON value, members in the order of their
// names. The key of an array's item is empty.
func leaves(v jsontext.Value, path string, visit func(path, key, text string)) {
	child := func(v jsontext.Value, path, key string) {
		if text, ok := scalar(v); ok {
			visit(path, key, text)
		} else {
			leaves(v, path, visit)
		}
	}
	var members map[string]jsontext.Value
	var items []jsontext.Value
	switch {
	case json.Unmarshal(v, &members) == nil:
		for _, key := range slices.Sorted(maps.Keys(members)) {
			child(members[key], strings.TrimPrefix(path+"."+key, "."), key)
		}
	case json.Unmarshal(v, &items) == nil:
		for _, item := range items {
			child(item, path, "")
		}
	}
}
