package program

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// lent are the agent's credentials for one run.
type lent struct {
	env   []string
	swaps []egress.Swap
	// known finds the values in output.
	known *secret.Known
	// missing has a refusal for each required slot without a credential.
	missing []*call.Refusal
}

// complete refuses if a required credential is missing.
func (l *lent) complete() error {
	if len(l.missing) == 0 {
		return nil
	}
	return l.missing[0]
}

// lend decides for each slot whether the run gets its value or a placeholder. The
// error is a refusal.
func (b *Bundle) lend() (*lent, error) {
	l := &lent{}
	var values []secret.Value
	for i := range b.agent.Slots {
		slot := &b.agent.Slots[i]
		s, err := b.options.Credentials.Slot(b.agent, slot)
		switch r, ok := errors.AsType[*call.Refusal](err); {
		case ok && !slot.Required:
			continue
		case ok:
			l.missing = append(l.missing, r)
			continue
		case err != nil:
			return nil, err
		}
		values = append(values, secret.Value{Name: slot.Ref, Secret: s.Reveal()})
		if b.mayHold(slot, s) {
			l.env = append(l.env, slot.Env+"="+s.Reveal())
			continue
		}
		text, err := l.substitute(slot, s, &values)
		if err != nil {
			return nil, call.Refuse(sandbox.Stage, call.CredentialMissing,
				"no placeholder can be made for the credential %s: %v", slot.Ref, err)
		}
		l.env = append(l.env, slot.Env+"="+text)
	}
	for _, v := range values {
		if len(l.swaps) > 0 && len(v.Secret) < minSecret {
			return nil, call.Refuse(sandbox.Stage, call.CredentialMissing,
				"the credential %s is too short to be found in responses, so it cannot be hidden from the code", v.Name)
		}
	}
	var err error
	if l.known, err = secret.NewKnown(values); err != nil {
		return nil, call.Refuse(sandbox.Stage, call.CredentialMissing, "output cannot be scanned for credentials: %v", err)
	}
	return l, nil
}

// minSecret is the length of the shortest value that is searched for in responses.
const minSecret = 6

// mayHold reports whether the code may have the value of a secret: the slot and the
// secret allow every host that the code can reach.
func (b *Bundle) mayHold(slot *agent.Slot, s credential.Secret) bool {
	return !slices.ContainsFunc(b.agent.Program.Hosts, func(host string) bool {
		return !slot.Covers(host) || len(s.Hosts()) > 0 && !agent.Covers(s.Hosts(), host)
	})
}

// substitute returns a placeholder for a secret. For a JSON object it returns an
// object of the same shape with a placeholder for each text.
func (l *lent) substitute(slot *agent.Slot, s credential.Secret, values *[]secret.Value) (string, error) {
	hosts := commonHosts(slot.Hosts, s.Hosts())
	add := func(value string) string {
		p := placeholder()
		l.swaps = append(l.swaps, egress.Swap{Placeholder: p, Value: func() string { return value }, Hosts: hosts})
		return p
	}
	if s.Type() != credential.JSON || jsontext.Value(s.Reveal()).Kind() != '{' {
		return add(s.Reveal()), nil
	}
	var document any
	if err := json.Unmarshal([]byte(s.Reveal()), &document); err != nil {
		return "", errors.New("it is not JSON")
	}
	text, err := json.Marshal(shape(document, func(value string) string {
		if len(value) < minSecret {
			return "" // too short to be found in responses
		}
		*values = append(*values, secret.Value{Name: slot.Ref, Secret: value})
		return add(value)
	}))
	return string(text), err
}

// shape returns a document with each text replaced. Numbers and booleans become null.
func shape(v any, text func(string) string) any {
	switch v := v.(type) {
	case string:
		return text(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, member := range v {
			out[key] = shape(member, text)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = shape(item, text)
		}
		return out
	}
	return nil
}

// commonHosts returns the hosts that the slot allows and the secret was set for. A
// secret without hosts allows all of the slot's.
func commonHosts(slot, set []string) []string {
	if len(set) == 0 {
		return slot
	}
	var hosts []string
	for _, a := range slot {
		for _, b := range set {
			switch {
			case agent.Covers([]string{b}, a):
				hosts = append(hosts, a)
			case agent.Covers([]string{a}, b):
				hosts = append(hosts, b)
			}
		}
	}
	return hosts
}

// placeholder returns a random word.
func placeholder() string {
	var b [16]byte
	rand.Read(b[:])
	return "ambit-placeholder-" + hex.EncodeToString(b[:])
}

// redact replaces the values in a line for the log.
func (l *lent) redact(line string) string {
	out, at := "", 0
	for _, f := range l.known.Find([]byte(line)) {
		out += line[at:f[0]] + "[secret]"
		at = f[1]
	}
	return out + line[at:]
}
