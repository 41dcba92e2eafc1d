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

// shape describes the type of a value in config.toml.
type shape struct {
	kind string // the name of the type in messages
	// fields contains the shape of each setting in a table, by name.
	fields map[string]shape
	// elem is the shape of every item in a list, or of every value in a table. If elem is set, a table can contain
	// settings of any name.
	elem *shape
}

type fields = map[string]shape

const isTable, isList = "a table", "a list"

var (
	text   = shape{kind: "a string"}
	number = shape{kind: "a whole number"}
	truth  = shape{kind: "true or false"}
	texts  = shape{kind: isList, elem: &text}
)

func table(n fields) shape { return shape{kind: isTable, fields: n} }
func mapOf(s shape) shape  { return shape{kind: isTable, elem: &s} }

// provider contains the settings of one OpenID provider.
var provider = fields{
	"issuer": text, "audience": text, "principal_claim": text, "groups_claim": text, "group_names": mapOf(text),
	"subjects": mapOf(texts), "groups": mapOf(texts), "admins": table(fields{"subjects": texts, "groups": texts}),
}

func withProviders(one fields) fields {
	all := maps.Clone(one)
	all["providers"] = mapOf(table(one))
	return all
}

// settings describes all tables and settings of config.toml. Each package decodes its table into a struct. Add a new
// setting to that struct and to this list.
var settings = table(fields{
	"bundles": mapOf(table(fields{"env": mapOf(text)})),
	"login":   table(fields{"issuer": text, "client_id": text, "scopes": texts, "resource": text}),
	"memory":  table(fields{"ttl": text}),
	"oidc":    table(withProviders(provider)),
	"quota": table(fields{
		"calls_per_minute": number, "calls_per_day": number,
		"principals": mapOf(table(fields{"calls_per_minute": number, "calls_per_day": number})),
	}),
	"registry":  mapOf(table(fields{"url": text, "namespace": text, "private": truth, "packages": texts})),
	"retention": table(fields{"journal": text}),
	"scopes":    mapOf(mapOf(texts)),
	"server":    mapOf(table(fields{"work": text, "args": texts, "env": mapOf(text)})),
	"skills": table(fields{
		"endpoint": text, "bucket": text, "region": text, "access_key_ref": text, "secret_key_ref": text,
	}),
	"upstream": mapOf(table(fields{
		"client_id": text, "client_metadata_url": text, "issuer": text, "redirect_port": number, "scopes": texts,
		"legacy_discovery": truth, "grant": text, "assertion_file": text,
		"idp_token_endpoint": text, "idp_client_id": text,
	})),
})

// check compares a decoded settings file with the known settings. The error lists at most maxProblems differences.
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

const maxProblems = 10

// checker collects the problems of a settings file and finds their positions in the file.
type checker struct {
	problems []problem
	places   map[string]int // the offset at which each key first appears, by the path of the key
}

type problem struct{ path, text string }

func pathOf(keys []string) string { return strings.Join(keys, "\x00") }

func (c *checker) add(keys []string, format string, args ...any) {
	within := ""
	for _, key := range keys[:len(keys)-1] {
		within += "." + quoteKey(key)
	}
	if within != "" {
		within = "[" + within[1:] + "]: "
	}
	c.problems = append(c.problems, problem{pathOf(keys), within + fmt.Sprintf(format, args...)})
}

func (c *checker) table(t map[string]any, s shape, path []string) {
	for key, v := range t {
		keys := append(slices.Clone(path), key)
		is, known := s.fields[key]
		if s.elem != nil {
			is, known = *s.elem, true
		}
		if known {
			c.value(v, is, keys)
			continue
		}
		name := "setting " + quoteKey(key)
		if len(path) == 0 && kindOf(v) == isTable {
			name = "table [" + quoteKey(key) + "]"
		}
		c.add(keys, "there is no %s%s", name, suggestion(key, s.fields))
	}
}

func (c *checker) value(v any, s shape, keys []string) {
	name := quoteKey(keys[len(keys)-1])
	if len(keys) == 1 {
		name = "[" + name + "]"
	}
	if is := kindOf(v); is != s.kind {
		c.add(keys, "%s has the wrong type: it is %s, but must be %s", name, is, s.kind)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		c.table(v, s, keys)
	case []any:
		for _, item := range v {
			if is := kindOf(item); is != s.elem.kind {
				c.add(keys, "%s has the wrong type: it contains %s, but each item must be %s", name, is, s.elem.kind)
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

// locate finds the positions of all keys in a file and stores them in c.places.
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

// quoteKey returns a key in TOML syntax. It adds quotes unless the key is a bare key.
func quoteKey(name string) string {
	bare := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !bare(r) }) < 0 {
		return name
	}
	return strconv.Quote(name)
}

// suggestion returns a hint with the most similar known name. It returns "" if no known name is similar.
func suggestion(name string, known fields) string {
	if near := diag.Closest(name, slices.Sorted(maps.Keys(known))); near != "" {
		return "; did you mean " + strconv.Quote(near) + "?"
	}
	return ""
}
