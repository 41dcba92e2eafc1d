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
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// Stage is the stage that appears in refusals about credentials.
const Stage = "act"

// Own is the name under which ambit stores its own secrets. An agent with this name gets no stored secrets.
const Own = "ambit"

// Source finds the secrets of an agent.
type Source struct {
	// Agent is the name under which the agent runs. The name comes from the agent's file, never from the manifest. If
	// Agent is empty, Source reads only the environment variables that the manifest specifies.
	Agent string
	// Vault is searched before the environment. Vault can be nil.
	Vault Vault
	// Environ returns the value of an environment variable. The default is the environment of this process.
	Environ func(name string) (string, bool)
	// OnError receives the errors of functions that cannot return an error, such as the function from
	// [Source.Lookup]. If OnError is nil, the errors are ignored.
	OnError func(error)

	issued *issued // records the secrets that the source has returned; nil to record nothing
	tokens *tokens // caches the access tokens of service accounts; nil to cache nothing
}

// The places where a secret can be found.
const (
	InVault       = "vault"
	InEnvironment = "environment"
)

// For returns a copy of the source. The copy finds the secrets of the agent with the given name. It records the secrets
// that [Source.Slot] and [Source.Lookup] return, and [Source.Known] includes the recorded secrets.
func (s *Source) For(name string) *Source {
	c := *s
	c.Agent = name
	c.issued = &issued{byRef: map[string][][]Secret{}}
	c.tokens = &tokens{bySlot: map[string]cachedToken{}}
	return &c
}

// canStore reports whether secrets can be stored under the agent's name.
func (s *Source) canStore() bool { return s.Agent != "" && s.Agent != Own }

// ID returns the id of an agent in the form that the manifest uses, without the prefix matrix://agent/.
func ID(a *agent.Agent) string { return strings.TrimPrefix(a.ID, "matrix://agent/") }

// EnvName returns ambit's environment variable for a secret of an agent: AMBIT_SECRET_<AGENT>__<REF>. Letters become
// capitals, and all characters except letters and digits become _. Several agent names can map to the same variable.
// An agent therefore reads the variable only if isPlain accepts the agent's name.
func EnvName(agentName, ref string) string {
	return "AMBIT_SECRET_" + capitals(agentName) + "__" + capitals(ref)
}

// isPlain reports whether a name consists of lowercase letters and digits, with single hyphens between them.
// Different plain names have different variables. A plain name never contains __, so the first __ after the prefix
// ends the name.
func isPlain(name string) bool {
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

// Reference is a secret that a manifest refers to.
type Reference struct {
	Ref      string
	Type     Type
	Env      string
	Hosts    []string
	Required bool
	Scopes   []string // the scopes of the access tokens for which a service account's key is exchanged
}

// Secret returns a secret with a value that a person entered. Only the agent with the given [ID] can use the secret.
// An empty id means any agent.
func (w *Reference) Secret(value, id string) (Secret, error) {
	s, err := New(w.Type, value, w.Hosts)
	return s.Of(id).ForScopes(w.Scopes), err
}

// References returns the secrets in the agent's credential slots and in the settings of its servers.
func References(a *agent.Agent) []Reference {
	var all []Reference
	for _, s := range a.Slots {
		all = append(all, Reference{s.Ref, Type(s.Type), s.Env, s.Hosts, s.Required, s.Scopes})
	}
	for i := range a.Servers {
		all = addReferences(all, a, &a.Servers[i])
	}
	return all
}

// addReferences adds the secrets in the settings of a server. For a local program, the list of hosts is empty,
// because the program could send the secret anywhere.
func addReferences(all []Reference, a *agent.Agent, s *agent.Server) []Reference {
	one := agent.Agent{Servers: []agent.Server{*s}}
	for _, secret := range one.Reach().Secrets {
		at := slices.IndexFunc(all, func(w Reference) bool { return w.Ref == secret.Name })
		switch {
		case at < 0:
			all = append(all, Reference{secret.Name, Masked, secret.Name, secret.Hosts, true, nil})
		case a.Slot(secret.Name) != nil:
			// The credential slot takes precedence over the server's settings.
		case len(all[at].Hosts) == 0 || len(secret.Hosts) == 0:
			all[at].Hosts = nil
		default:
			known := func(h string) bool { return slices.Contains(all[at].Hosts, h) }
			all[at].Hosts = slices.Concat(all[at].Hosts, slices.DeleteFunc(slices.Clone(secret.Hosts), known))
		}
	}
	return all
}

// Find looks for a secret. The second result is [InVault] or [InEnvironment], or empty if the secret is not set. The
// third result is the environment variable that contains the secret, if any.
func (s *Source) Find(a *agent.Agent, w Reference) (secret Secret, where, variable string, err error) {
	if s.Vault != nil && s.canStore() {
		secret, ok, err := s.Vault.Get(s.Agent, w.Ref)
		if err != nil {
			return Secret{}, "", "", err
		}
		if ok && isFor(secret, a) {
			return secret, InVault, "", nil
		}
	}
	for _, variable := range []string{s.ambitVariable(w.Ref), manifestVariable(w.Env)} {
		if variable == "" {
			continue
		}
		if value := s.environ(variable); value != "" {
			secret, err := New(w.Type, value, nil)
			if err != nil {
				return Secret{}, "", "", &badVariable{variable, err}
			}
			return secret, InEnvironment, variable, nil
		}
	}
	return Secret{}, "", "", nil
}

// Variables returns the names of the environment variables that can contain the agent's secrets.
func (s *Source) Variables(a *agent.Agent) []string {
	var names []string
	for _, w := range References(a) {
		names = append(names, s.ambitVariable(w.Ref), manifestVariable(w.Env))
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// badVariable is the error for an environment variable whose value does not have the type of the secret.
type badVariable struct {
	variable string
	error
}

func (e *badVariable) Error() string { return e.variable + ": " + e.error.Error() }

func (e *badVariable) Unwrap() error { return e.error }

// Hint returns what to do.
func (e *badVariable) Hint() string {
	return "correct or unset the environment variable " + e.variable + "; a slot of type json needs a whole JSON document"
}

func (s *Source) environ(variable string) string {
	if s.Environ == nil {
		return os.Getenv(variable)
	}
	value, _ := s.Environ(variable)
	return value
}

// isFor reports whether a secret was set for this agent's id or for any id.
func isFor(s Secret, a *agent.Agent) bool { return s.content().id == "" || s.content().id == ID(a) }

// ambitVariable returns ambit's environment variable for a secret of the agent. It returns "" if the agent's name is
// empty, reserved or not plain.
func (s *Source) ambitVariable(ref string) string {
	if !s.canStore() || !isPlain(s.Agent) {
		return ""
	}
	return EnvName(s.Agent, ref)
}

// Former explains why an agent does not get a secret that seems to belong to the agent. Former handles three cases:
//
//   - The secret was set for an earlier agent with the same name.
//   - The secret is stored under the id in the manifest, as in version 1 of the vault.
//   - The secret is in an environment variable to which several agent names map.
//
// In all other cases, Former returns "".
func (s *Source) Former(a *agent.Agent, ref string) string {
	if !s.canStore() {
		return ""
	}
	if variable := EnvName(s.Agent, ref); !isPlain(s.Agent) && s.environ(variable) != "" {
		return fmt.Sprintf("the variable %s is not read for agent %s, because another agent name maps to the same variable; "+
			"to use a variable, rename the agent so that its name has only lowercase letters, digits and single hyphens",
			variable, s.Agent)
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

// manifestVariable returns the environment variable that a manifest specifies for a secret. It returns "" if the
// variable begins with AMBIT_, because such a variable can contain the secret of a different agent.
func manifestVariable(variable string) string {
	if strings.HasPrefix(strings.ToUpper(variable), "AMBIT_") {
		return ""
	}
	return variable
}

// Slot returns the secret of a credential slot. The zero Secret means that the credential is optional and not set. The
// error is a [*call.Refusal].
func (s *Source) Slot(a *agent.Agent, slot *agent.Slot) (Secret, error) {
	secret, where, _, err := s.Find(a, Reference{slot.Ref, Type(slot.Type), slot.Env, slot.Hosts, slot.Required, slot.Scopes})
	if err != nil {
		r := call.Refuse(Stage, call.CredentialMissing, "the credential %s cannot be read: %v", slot.Ref, err)
		if bad, ok := errors.AsType[*badVariable](err); ok {
			r.Hint = bad.Hint()
		}
		return Secret{}, r
	}
	if where == "" && !slot.Required {
		return Secret{}, nil
	}
	if where == "" {
		r := call.Refuse(Stage, call.CredentialMissing, "the credential %s (%s) is not set", slot.Ref, slot.Label)
		r.Hint = s.howToSet(a, slot.Ref, manifestVariable(slot.Env))
		return Secret{}, r
	}
	s.issued.add(a, slot.Ref, secret)
	return secret, nil
}

// howToSet returns the hint for a missing secret.
func (s *Source) howToSet(a *agent.Agent, ref, variable string) string {
	if s.Agent == Own {
		return "rename the agent's file, because the name \"ambit\" is reserved for ambit's own secrets"
	}
	variable = cmp.Or(variable, s.ambitVariable(ref))
	if variable == "" && s.Agent == "" {
		variable = EnvName("AGENT", ref)
	}
	hint := fmt.Sprintf("store the secret: ambit secret set %s %s", cmp.Or(s.Agent, "AGENT"), ref)
	if variable != "" {
		hint += ", or set the environment variable " + variable
	}
	if former := s.Former(a, ref); former != "" {
		hint += "; " + former
	}
	return hint
}

// Lookup returns a function that resolves $env:NAME in the settings of an agent's servers. If a secret was set for
// certain hosts, servers on other hosts do not get the secret.
func (s *Source) Lookup(a *agent.Agent) func(name string) (string, bool) {
	wants := References(a)
	return func(name string) (string, bool) {
		w := Reference{Ref: name, Type: Masked, Env: name}
		if at := slices.IndexFunc(wants, func(w Reference) bool { return w.Ref == name }); at >= 0 {
			w = wants[at]
			w.Env = name
		}
		secret, where, _, err := s.Find(a, w)
		if err == nil && where != "" && !secret.covers(w.Hosts) {
			err = fmt.Errorf("the secret %[1]s was not set for the host of its server; "+
				"if the host is right, run: ambit secret set %[2]s %[1]s", name, cmp.Or(s.Agent, "AGENT"))
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

// covers reports whether the secret was set for all of the given hosts. A secret that was set without a list of hosts
// covers all hosts. If the argument is empty, only such a secret is accepted.
func (s Secret) covers(hosts []string) bool {
	if len(s.content().hosts) == 0 {
		return true
	}
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return !s.allows(h) })
}

// Known returns the secrets to look for in output, in a stable order. The result contains the current values of the
// references, and all values that the source has returned before. If some values cannot be read, Known returns the
// others together with an error.
func (s *Source) Known(a *agent.Agent, wants []Reference) ([]Secret, error) {
	var known []Secret
	var failed error
	for _, w := range wants {
		secret, where, _, err := s.Find(a, w)
		if err != nil || where == "" {
			failed = errors.Join(failed, err)
			continue
		}
		known = append(known, withFields(a, w.Ref, secret)...)
	}
	return append(known, s.issued.all()...), failed
}

// publicFields lists members of JSON secrets whose values are public, such as the project id in the key file of a
// cloud provider. All other texts of at least minField bytes are secret, whatever their name is.
var publicFields = []string{
	"type", "project_id", "quota_project_id", "client_email", "client_id", "auth_uri", "token_uri", "universe_domain",
	"auth_provider_x509_cert_url", "client_x509_cert_url", "region", "zone", "host", "hostname", "endpoint", "url", "uri",
	"name", "username", "user", "email", "issuer", "audience", "database", "scope", "scopes", "tenant_id", "account",
}

const minField = 8

// withFields returns the secret itself and, for a JSON secret, its secret fields: fields that are sent in headers,
// fields that look like secrets, and fields that are not known to be public.
func withFields(a *agent.Agent, ref string, secret Secret) []Secret {
	all := []Secret{secret}
	if secret.Type() != JSON {
		return all
	}
	sent := sentFields(a)
	eachScalar(jsontext.Value(secret.Reveal()), "", func(path, key, text string) {
		hidden := len(text) >= minField && !slices.Contains(publicFields, strings.ToLower(key))
		if hidden || sent[ref+"."+path] || secretlike.Name(key) || secretlike.Find(text).Found() {
			if part, err := New(Masked, text, secret.Hosts()); err == nil {
				all = append(all, part)
			}
		}
	})
	return all
}

// sentFields returns the fields of JSON secrets that are sent in headers. Each field has the form REF.FIELD.
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

// eachScalar calls a callback for every scalar inside a JSON object or array. Members are visited in the order of
// their names. An array item is visited with an empty key.
func eachScalar(v jsontext.Value, path string, visit func(path, key, text string)) {
	child := func(v jsontext.Value, path, key string) {
		if text, ok := scalar(v); ok {
			visit(path, key, text)
		} else {
			eachScalar(v, path, visit)
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

// maxIssued is the maximum number of values that are recorded for one secret. When it is exceeded, the oldest value
// is dropped, even if a running program still uses that value.
const maxIssued = 256

// issued contains the secrets that a source has returned. It keeps the old values of a replaced secret, because a
// running program can still print them.
type issued struct {
	mu sync.Mutex
	// byRef contains the values of each secret, oldest first. Each value is a result of withFields.
	byRef map[string][][]Secret
}

// add records a secret. A nil receiver records nothing.
func (i *issued) add(a *agent.Agent, ref string, s Secret) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	values := i.byRef[ref]
	if slices.ContainsFunc(values, func(v []Secret) bool {
		return v[0].Type() == s.Type() && v[0].Reveal() == s.Reveal()
	}) {
		return
	}
	if len(values) == maxIssued {
		values = slices.Delete(values, 0, 1)
	}
	i.byRef[ref] = append(values, withFields(a, ref, s))
}

// all returns the recorded secrets in a stable order.
func (i *issued) all() (all []Secret) {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, ref := range slices.Sorted(maps.Keys(i.byRef)) {
		all = append(all, slices.Concat(i.byRef[ref]...)...)
	}
	return all
}
