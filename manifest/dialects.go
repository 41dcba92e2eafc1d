package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/manifest/convert"
	"github.com/ambit-run/ambit/manifest/covenant"
	"github.com/ambit-run/ambit/manifest/diag"
	"github.com/ambit-run/ambit/manifest/doc"
	"github.com/ambit-run/ambit/manifest/findagent"
	"github.com/ambit-run/ambit/manifest/gpars"
	"github.com/ambit-run/ambit/manifest/matrix"
)

// room is what a dialect offers.
type room struct {
	keys   []string
	rules  []*diag.Rule
	parse  func(doc.Value, *diag.Reporter) compiler
	from   func(*agent.Agent, *convert.Notes) (any, error)
	encode func(any) ([]byte, error)
	ext    string
}

var rooms = map[agent.Dialect]*room{
	agent.Matrix: {
		matrix.Keys, matrix.Rules,
		func(v doc.Value, r *diag.Reporter) compiler { return matrix.Parse(v, r) },
		func(a *agent.Agent, n *convert.Notes) (any, error) { return matrix.From(a, n) },
		encodeJSON, ".json",
	},
	agent.GPARS: {
		gpars.Keys, gpars.Rules,
		func(v doc.Value, r *diag.Reporter) compiler { return gpars.Parse(v, r) },
		func(a *agent.Agent, n *convert.Notes) (any, error) { return gpars.From(a, n) },
		encodeJSON, ".json",
	},
	agent.Covenant: {
		covenant.Keys, covenant.Rules,
		func(v doc.Value, r *diag.Reporter) compiler { return covenant.Parse(v, r) },
		func(a *agent.Agent, n *convert.Notes) (any, error) { return covenant.From(a, n) },
		toml.Marshal, ".toml",
	},
	agent.FindAgent: {
		findagent.Keys, findagent.Rules,
		func(v doc.Value, r *diag.Reporter) compiler { return findagent.Parse(v, r) },
		func(a *agent.Agent, n *convert.Notes) (any, error) { return findagent.From(a, n) },
		encodeJSON, ".json",
	},
}

func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// Rules lists every rule of every dialect, those that all share first.
func Rules() []*diag.Rule {
	rules := slices.Clone(diag.Shared)
	for _, d := range agent.Dialects {
		rules = append(rules, rooms[d].rules...)
	}
	return rules
}

// Detect tells the dialect of a manifest by the keys that only it has. It
// answers empty where there are none, or as many of one dialect as of another.
func Detect(name string, src []byte) agent.Dialect {
	r, readable := decode(name, string(src), false)
	if !readable {
		return ""
	}
	t, _ := parseTree(r, "")
	return detect(t.Root(), nil, true)
}

// Other files that people hand to a manifest reader, by a key that gives them
// away.
var otherFiles = []struct{ key, what string }{
	{"mcpServers", "this is an MCP client's configuration; import it to get a manifest"},
	{"mcp_servers", "this is an MCP client's configuration; import it to get a manifest"},
	{"openapi", "this is an OpenAPI description; import it to get a manifest"},
	{"dependencies", "this is a package's own manifest, not an agent's"},
	{"lockfileVersion", "this is a package manager's lock file"},
	{"packages", "this is a registry's server.json; import it to get a manifest"},
	{"remotes", "this is a registry's server.json; import it to get a manifest"},
	{"capabilities", "the later GPARS form with capabilities is not supported; list required_mcp_servers"},
}

// detect counts the telling keys. It reports to r, if there is one, what it
// cannot decide; of a file that could only be read in part, it says nothing.
func detect(root doc.Value, r *diag.Reporter, complete bool) agent.Dialect {
	var best, second agent.Dialect
	var most, next int
	for _, d := range agent.Dialects {
		switch n := count(telling(d, root)); {
		case n > most:
			best, most, second, next = d, n, best, most
		case n > next:
			second, next = d, n
		}
	}
	switch {
	case most > next:
		return best
	case r == nil || !complete:
	case most > 0:
		one, other := firstKey(best, root), firstKey(second, root)
		r.Report(diag.MixedDialects, other.KeyPlace(), "",
			"%s is a key of %s, but %s is one of %s", diag.Quote(other.Key()), second, diag.Quote(one.Key()), best)
	default:
		r.Report(diag.UnknownDialect, root.Head(), unknownHint(root), "no key of this file belongs to a known dialect")
	}
	return ""
}

func count(seq iter.Seq[doc.Value]) int {
	n := 0
	for range seq {
		n++
	}
	return n
}

func firstKey(d agent.Dialect, root doc.Value) doc.Value {
	for v := range telling(d, root) {
		return v
	}
	return doc.Value{}
}

// telling yields the members of root that only dialect d has.
func telling(d agent.Dialect, root doc.Value) iter.Seq[doc.Value] {
	return func(yield func(doc.Value) bool) {
		if (d == agent.Covenant) != root.TOML() {
			return
		}
		for _, k := range rooms[d].keys {
			v := root.Get(k)
			// In JSON "agent" is Matrix' only as a text.
			if v.Ok() && !(k == "agent" && d == agent.Matrix && !v.Is(doc.String)) && !yield(v) {
				return
			}
		}
	}
}

func unknownHint(root doc.Value) string {
	for _, o := range otherFiles {
		if root.Get(o.key).Ok() {
			return o.what
		}
	}
	if root.Get("agent").Is(doc.Object) {
		return "Covenant manifests are TOML: write [agent] in a file that ends in .toml"
	}
	var all []string
	for _, d := range agent.Dialects {
		all = append(all, rooms[d].keys...)
	}
	looked := 0
	for m := range root.Each() {
		if looked++; looked > 64 {
			break // nobody misspelt among that many
		}
		if hint := diag.DidYouMean(m.Key(), all); hint != "" && len(m.Key()) > 3 {
			return fmt.Sprintf("for %s: %s", diag.Quote(m.Key()), hint)
		}
	}
	names := make([]string, len(agent.Dialects))
	for i, d := range agent.Dialects {
		names[i] = string(d)
	}
	return "name the dialect with --dialect " + strings.Join(names, "|")
}
