package credential

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/secretlike"
)

// Stage is where calls for want of a credential are refused.
const Stage = "act"

// Source finds the secrets of agents.
type Source struct {
	// Vault is asked first; nil if there is none.
	Vault Vault
	// Environ looks into the environment; nil stands for that of this process.
	Environ func(name string) (string, bool)
	// OnError is told of a vault that cannot be read where no error can be
	// returned; nil ignores it.
	OnError func(error)
}

// Places where a secret can be.
const (
	InVault       = "vault"
	InEnvironment = "environment"
)

// Name is the name under which an agent's secrets are kept.
func Name(a *agent.Agent) string { return strings.TrimPrefix(a.ID, "matrix://agent/") }

// EnvName is the environment variable that fills a ref of one agent and of no
// other: AMBIT_SECRET_<AGENT>__<REF>, in capitals, with _ for what else is there.
func EnvName(agentName, ref string) string {
	return "AMBIT_SECRET_" + capitals(agentName) + "__" + capitals(ref)
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
	name := Name(a)
	if s.Vault != nil {
		secret, ok, err := s.Vault.Get(name, w.Ref)
		if err != nil {
			return Secret{}, "", "", err
		}
		if ok {
			return secret, InVault, "", nil
		}
	}
	environ := s.Environ
	if environ == nil {
		environ = os.LookupEnv
	}
	for _, variable := range []string{EnvName(name, w.Ref), theirs(w.Env)} {
		if variable == "" {
			continue
		}
		if value, ok := environ(variable); ok && value != "" {
			secret, err := New(w.Type, value, nil)
			if err != nil {
				return Secret{}, "", "", fmt.Errorf("%s: %w", variable, err)
			}
			return secret, InEnvironment, variable, nil
		}
	}
	return Secret{}, "", "", nil
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
		r.Hint = fmt.Sprintf("store it: ambit secret set %s %s, or set the environment variable %s", Name(a), slot.Ref, cmp.Or(theirs(slot.Env), EnvName(Name(a), slot.Ref)))
		return Secret{}, r
	}
	return secret, nil
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
			err = fmt.Errorf("%s was set for other hosts than its server's: set it again with ambit secret set %s %s", name, Name(a), name)
		}
		if err != nil {
			s.tell(err)
			return "", false
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

// Known are the values of an agent's secrets, for the scan of what leaves: of a
// JSON secret also the fields that are sent, and those that look secret.
func (s *Source) Known(a *agent.Agent) ([]Secret, error) {
	var known []Secret
	var failed error
	sent := sentFields(a)
	for _, w := range Wants(a) {
		secret, where, _, err := s.Find(a, w)
		if err != nil || where == "" {
			failed = errors.Join(failed, err)
			continue
		}
		known = append(known, secret)
		if secret.Type() != JSON {
			continue
		}
		leaves(jsontext.Value(secret.Reveal()), "", func(path, key, text string) {
			if sent[w.Ref+"."+path] || secretlike.Name(key) || secretlike.Find(text).Found() {
				if part, err := New(Masked, text, secret.Hosts()); err == nil {
					known = append(known, part)
				}
			}
		})
	}
	return known, failed
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

// leaves visits the texts and numbers inside a JSON value.
func leaves(v jsontext.Value, path string, visit func(path, key, text string)) {
	switch v.Kind() {
	case '{':
		var members map[string]jsontext.Value
		if json.Unmarshal(v, &members) != nil {
			return
		}
		for key, m := range members {
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
