package action

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// leaveOut reports whether a template consists of exactly one placeholder {name?} or {name*} that has no value.
func (a arguments) leaveOut(template string) bool {
	p, whole := agent.Whole(template)
	if !whole || p.Modifier == "" {
		return false
	}
	v, err := a.value(p.Name)
	return err != nil || v.Kind() == 'n'
}

// pairs fills the placeholders of a query or form, pair by pair. It leaves out a pair whose value is {name?} or {name*}
// if the placeholder has no value. It repeats a pair whose value is {name*}.
func (a arguments) pairs(template string) (string, error) {
	var out []string
	for pair := range strings.SplitSeq(template, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if a.leaveOut(value) {
			continue
		}
		if p, _ := agent.Whole(value); p.Modifier == agent.Repeated {
			v, err := a.value(p.Name)
			if err == nil {
				name, err = a.fill(name, percent)
			}
			if err == nil {
				out, err = a.repeat(out, name, v, false)
			}
			if err != nil {
				return "", err
			}
			continue
		}
		filled, err := a.fill(pair, percent)
		if err != nil {
			return "", err
		}
		out = append(out, filled)
	}
	return strings.Join(out, "&"), nil
}

// repeat appends the pairs of a value to a list. A list becomes one pair for each element. A member of an object
// becomes a pair with the name NAME[MEMBER]. If nested is true, the value is part of another value.
func (a arguments) repeat(out []string, name string, v jsontext.Value, nested bool) ([]string, error) {
	if err := a.take(len(name)); err != nil {
		return nil, err
	}
	switch v.Kind() {
	case 'n':
		return out, nil
	case '[':
		var elements []jsontext.Value
		if err := json.Unmarshal(v, &elements); err != nil {
			return nil, err
		}
		for i, e := range elements {
			key := name
			switch kind := e.Kind(); {
			case kind == '[' || kind == '{':
				key += "%5B" + strconv.Itoa(i) + "%5D"
			case nested:
				key += "%5B%5D"
			}
			var err error
			if out, err = a.repeat(out, key, e, true); err != nil {
				return nil, err
			}
		}
		return out, nil
	case '{':
		var members map[string]jsontext.Value
		if err := json.Unmarshal(v, &members); err != nil {
			return nil, err
		}
		for _, member := range slices.Sorted(maps.Keys(members)) {
			if strings.ContainsAny(member, "[]") {
				return nil, call.Refuse(stage, call.InputInvalid,
					"the name %s contains a bracket, which would change the structure of the request", diag.Quote(member))
			}
			key, err := percent(member)
			if err == nil {
				out, err = a.repeat(out, name+"%5B"+key+"%5D", members[member], true)
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	text, err := textOf(v, nil)
	if err == nil {
		text, err = percent(text)
	}
	if err == nil {
		err = a.take(len(text))
	}
	if err != nil {
		return nil, err
	}
	return append(out, name+"="+text), nil
}

// removeMember removes the last member or element of an unfinished JSON text, together with one comma. The parameter
// begin is the offset of the bracket or comma before the member. The parameter rest is the template text after the
// member. removeMember returns how many bytes of that text to skip.
func removeMember(b *bytes.Buffer, begin int, rest string) int {
	after := strings.TrimLeft(rest, " \t\r\n")
	switch {
	case b.Len() == 0: // the placeholder is the whole template, so nothing follows it
	case strings.HasPrefix(after, ","):
		b.Truncate(begin + 1)
		return len(rest) - len(after) + 1
	case b.Bytes()[begin] == ',':
		b.Truncate(begin)
	default:
		b.Truncate(begin + 1)
	}
	return 0
}
