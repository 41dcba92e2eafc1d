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

// lent is what one run gets of the agent's credentials.
type lent struct {
	env   []string
	swaps []egress.Swap
	// known are the values, as they may come back.
	known *secret.Known
	// missing says which slots that are required are not filled.
	missing []*call.Refusal
}

// complete refuses if a slot that is required is not filled.
func (l *lent) complete() error {
	if len(l.missing) == 0 {
		return nil
	}
	return l.missing[0]
}

// lend decides for each slot whether the run gets its value or a placeholder. An
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
		if b.holds(slot, s) {
			l.env = append(l.env, slot.Env+"="+s.Reveal())
			continue
		}
		shown, err := l.stand(slot, s, &values)
		if err != nil {
			return nil, call.Refuse(sandbox.Stage, call.CredentialMissing, "the credential %s cannot be lent: %v", slot.Ref, err)
		}
		l.env = append(l.env, slot.Env+"="+shown)
	}
	for _, v := range values {
		if len(l.swaps) > 0 && len(v.Secret) < shortest {
			return nil, call.Refuse(sandbox.Stage, call.CredentialMissing, "the credential %s is too short to be told apart from other text, so it cannot be kept from the code", v.Name)
		}
	}
	var err error
	if l.known, err = secret.NewKnown(values); err != nil {
		return nil, call.Refuse(sandbox.Stage, call.CredentialMissing, "the credentials cannot be watched: %v", err)
	}
	return l, nil
}

// shortest is the shortest value that is found again in what a host answers.
const shortest = 6

// holds reports whether the code may hold a secret itself: every host that it
// can reach is the slot's, and one that the secret was set for.
func (b *Bundle) holds(slot *agent.Slot, s credential.Secret) bool {
	return !slices.ContainsFunc(b.agent.Program.Hosts, func(host string) bool {
		return !slot.Covers(host) || len(s.Hosts()) > 0 && !agent.Covers(s.Hosts(), host)
	})
}

// stand makes what stands for a secret: a placeholder, or for a JSON document
// one of the same shape with a placeholder for each text in it.
func (l *lent) stand(slot *agent.Slot, s credential.Secret, values *[]secret.Value) (string, error) {
	hosts := both(slot.Hosts, s.Hosts())
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
		if len(value) < shortest {
			return "" // it could not be found again
		}
		*values = append(*values, secret.Value{Name: slot.Ref, Secret: value})
		return add(value)
	}))
	return string(text), err
}

// shape is a document with each text replaced, and nothing in place of what is
// neither text nor a list or object of some.
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

// both are the hosts that the slot allows and the secret was set for; a secret
// that was set for none in particular leaves it to the slot.
func both(slot, set []string) []string {
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

// placeholder is a word that nobody can guess and no other run knows.
func placeholder() string {
	var b [16]byte
	rand.Read(b[:])
	return "ambit-placeholder-" + hex.EncodeToString(b[:])
}

// hush takes the values out of a line for the log.
func (l *lent) hush(line string) string {
	found := l.known.Find([]byte(line))
	if len(found) == 0 {
		return line
	}
	out, at := "", 0
	for _, f := range found {
		out += line[at:f[0]] + "[secret]"
		at = f[1]
	}
	return out + line[at:]
}
