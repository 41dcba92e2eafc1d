package home

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// shape describes a value of config.toml.
type shape struct {
	kind string
	// names contains a table's settings. A table without them has entries of any name
	// and the shape each.
	names map[string]shape
	each  *shape
}

type names = map[string]shape

const isTable, isList = "a table", "a list"

var (
	text   = shape{kind: "a string"}
	number = shape{kind: "a whole number"}
	truth  = shape{kind: "true or false"}
	texts  = shape{kind: isList, each: &text}
)

func table(n names) shape { return shape{kind: isTable, names: n} }
func each(s shape) shape  { return shape{kind: isTable, each: &s} }

// settings lists everything that config.toml may contain. The package that uses a table
// reads it into its own type. A new setting must be added here as well.
var settings = table(names{
	"bundles": each(table(names{"env": each(text)})),
	"login":   table(names{"issuer": text, "client_id": text, "scopes": texts, "resource": text}),
	"memory":  table(names{"ttl": text}),
	"oidc": table(names{
		"issuer": text, "audience": text, "principal_claim": text, "groups_claim": text,
		"subjects": each(texts), "groups": each(texts), "admins": table(names{"subjects": texts, "groups": texts}),
	}),
	"quota": table(names{
		"calls_per_minute": number, "calls_per_day": number,
		"principals": each(table(names{"calls_per_minute": number, "calls_per_day": number})),
	}),
	"registry":  each(table(names{"url": text, "namespace": text, "private": truth, "packages": texts})),
	"retention": table(names{"journal": text}),
	"scopes":    each(each(texts)),
	"server":    each(table(names{"work": text, "args": texts, "env": each(text)})),
	"skills": table(names{
		"endpoint": text, "bucket": text, "region": text, "access_key_ref": text, "secret_key_ref": text,
	}),
})

// check compares a decoded file with settings and reports every difference.
func check(file string, content []byte, whole map[string]any) error {
	c := checker{places: map[string]int{}}
	c.table(whole, settings, nil)
	if len(c.problems) == 0 {
		return nil
	}
	c.locate(content)
	slices.SortFunc(c.problems, func(a, b problem) int { return cmp.Compare(c.places[a.path], c.places[b.path]) })
	var report []string
	for i, p := range c.problems {
		if i == maxProblems {
			report = append(report, "and more")
			break
		}
		before := string(content[:c.places[p.path]])
		line, column := 1+strings.Count(before, "\n"), len(before)-strings.LastIndex(before, "\n")
		report = append(report, fmt.Sprintf("%s:%d:%d: %s", file, line, column, p.text))
	}
	return errors.New(strings.Join(report, "; "))
}

// maxProblems bounds the length of a report.
const maxProblems = 10

// checker finds problems and then their positions.
type checker struct {
	problems []problem
	places   map[string]int // path to the offset of the first key that names it
}

type problem struct{ path, text string }

func pathOf(keys []string) string { return strings.Join(keys, "\x00") }

func (c *checker) add(keys []string, format string, args ...any) {
	within := ""
	for _, key := range keys[:len(keys)-1] {
		within += "." + shown(key)
	}
	if within != "" {
		within = "[" + within[1:] + "]: "
	}
	c.problems = append(c.problems, problem{pathOf(keys), within + fmt.Sprintf(format, args...)})
}

func (c *checker) table(t map[string]any, s shape, path []string) {
	for key, v := range t {
		keys := append(slices.Clone(path), key)
		is, known := s.names[key]
		if s.each != nil {
			is, known = *s.each, true
		}
		if known {
			c.value(v, is, keys)
			continue
		}
		name := "setting " + shown(key)
		if len(path) == 0 && kindOf(v) == isTable {
			name = "table [" + shown(key) + "]"
		}
		c.add(keys, "there is no %s%s", name, meant(key, s.names))
	}
}

func (c *checker) value(v any, s shape, keys []string) {
	name := shown(keys[len(keys)-1])
	if len(keys) == 1 {
		name = "[" + name + "]"
	}
	if is := kindOf(v); is != s.kind {
		c.add(keys, "%s is of the wrong type: it is %s and must be %s", name, is, s.kind)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		c.table(v, s, keys)
	case []any:
		for _, item := range v {
			if is := kindOf(item); is != s.each.kind {
				c.add(keys, "%s is of the wrong type: it contains %s and must contain %s", name, is, s.each.kind)
			}
		}
	}
}

func kindOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return isTable
	case []any:
		return isList
	case string:
		return text.kind
	case int64:
		return number.kind
	case float64:
		return "a fraction"
	case bool:
		return truth.kind
	}
	return "a date"
}

// locate finds the positions of all keys in a file.
func (c *checker) locate(content []byte) {
	var p unstable.Parser
	p.Reset(content)
	var at []string
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			at = c.keys(nil, e.Key())
		case unstable.KeyValue:
			c.keyValue(at, e)
		}
	}
}

func (c *checker) keyValue(at []string, e *unstable.Node) {
	at = c.keys(at, e.Key())
	if v := e.Value(); v.Kind == unstable.InlineTable {
		for member := v.Children(); member.Next(); {
			c.keyValue(at, member.Node())
		}
	}
}

func (c *checker) keys(at []string, key unstable.Iterator) []string {
	at = slices.Clone(at)
	for key.Next() {
		at = append(at, string(key.Node().Data))
		if _, seen := c.places[pathOf(at)]; !seen {
			c.places[pathOf(at)] = int(key.Node().Raw.Offset)
		}
	}
	return at
}

// shown returns a key as TOML writes it: quoted if it is not a bare key.
func shown(name string) string {
	bare := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !bare(r) }) < 0 {
		return name
	}
	return strconv.Quote(name)
}

// meant suggests the known name that is nearest.
func meant(name string, known names) string {
	if near := diag.Closest(name, slices.Sorted(maps.Keys(known))); near != "" {
		return "; did you mean " + strconv.Quote(near) + "?"
	}
	return ""
}
