package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/internal/manifest/covenant"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
	"github.com/ambit-run/ambit/internal/manifest/gpars"
	"github.com/ambit-run/ambit/internal/manifest/matrix"
)

type parseFunc func(doc.Value, *diag.Reporter) compiler

// format describes a dialect.
type format struct {
	keys  []string // the top-level keys that no other dialect has
	rules []*diag.Rule
	toml  bool // written in TOML, not JSON
	parse parseFunc
	// parseLoopback is parse under Options.LoopbackHTTP; nil if the option has no effect.
	parseLoopback parseFunc
	namePath      []string // the path to the agent's name
	from          func(*agent.Agent, *convert.Notes) (any, error)
}

var formats = func() map[agent.Dialect]*format {
	all := map[agent.Dialect]*format{
		agent.Matrix:    newFormat("agent", matrix.Keys, matrix.Rules, matrix.Parse, matrix.From),
		agent.GPARS:     newFormat("id", gpars.Keys, gpars.Rules, gpars.Parse, gpars.From),
		agent.Covenant:  newFormat("agent.id", covenant.Keys, covenant.Rules, covenant.Parse, covenant.From),
		agent.FindAgent: newFormat("name", findagent.Keys, findagent.Rules, findagent.Parse, findagent.From),
	}
	all[agent.Covenant].toml = true
	all[agent.FindAgent].parseLoopback = func(v doc.Value, r *diag.Reporter) compiler {
		return findagent.ParseLoopback(v, r)
	}
	return all
}()

// newFormat hides the dialect's own type M.
func newFormat[M compiler](
	namePath string, keys []string, rules []*diag.Rule,
	parse func(doc.Value, *diag.Reporter) M, from func(*agent.Agent, *convert.Notes) (M, error),
) *format {
	return &format{
		namePath: strings.Split(namePath, "."), keys: keys, rules: rules,
		parse: func(v doc.Value, r *diag.Reporter) compiler { return parse(v, r) },
		from:  func(a *agent.Agent, n *convert.Notes) (any, error) { return from(a, n) },
	}
}

// name returns the value that names the agent.
func (f *format) name(root doc.Value) doc.Value {
	for _, key := range f.namePath {
		root = root.Get(key)
	}
	return root
}

func (f *format) encode(typed any) ([]byte, error) {
	if f.toml {
		return toml.Marshal(typed)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(typed)
	return b.Bytes(), err
}

// Rules returns the rules of all dialects, the shared ones first.
func Rules() []*Rule {
	rules := slices.Clone(diag.Shared)
	for _, d := range agent.Dialects {
		rules = append(rules, formats[d].rules...)
	}
	return rules
}

// Detect returns the dialect with the most top-level keys of its own in the manifest. It returns "" if there are no such
// keys, or as many of one dialect as of another.
func Detect(name string, src []byte) agent.Dialect {
	r, readable := decode(name, string(src), false)
	if !readable {
		return ""
	}
	t, _ := parseTree(r, "")
	return detect(t.Root(), nil, true)
}

// otherFiles are the other kinds of files that people pass to ambit, each with a key that identifies it.
var otherFiles = []struct{ key, what string }{
	{"mcpServers", "this is an MCP client's configuration; import it to get a manifest"},
	{"mcp_servers", "this is an MCP client's configuration; import it to get a manifest"},
	{"openapi", "this is an OpenAPI description; convert it to a manifest: ambit import FILE"},
	{"dependencies", "this is a package's own manifest, not an agent's"},
	{"lockfileVersion", "this is a package manager's lock file"},
	{"packages", "this is a registry's server.json; import it to get a manifest"},
	{"remotes", "this is a registry's server.json; import it to get a manifest"},
	{"capabilities", "the later GPARS form with capabilities is not supported; list required_mcp_servers"},
}

// owners and ownersTOML map a top-level key to the one dialect that has it, in JSON and in TOML.
var owners, ownersTOML = ownKeys(false), ownKeys(true)

func ownKeys(toml bool) map[string]agent.Dialect {
	keys := map[string]agent.Dialect{}
	for d, f := range formats {
		if f.toml == toml {
			for _, key := range f.keys {
				keys[key] = d
			}
		}
	}
	return keys
}

// ownerOf returns the one dialect that has this top-level member, or "".
func ownerOf(m doc.Value) agent.Dialect {
	if m.TOML() {
		return ownersTOML[m.Key()]
	}
	if m.Key() == "agent" && !m.Is(doc.String) {
		return "" // in Matrix it is a string, in other files an object
	}
	return owners[m.Key()]
}

// detect counts the keys that belong to one dialect. It reports to r, which may be nil, why there is no winner, unless
// the file could not be parsed completely.
func detect(root doc.Value, r *diag.Reporter, complete bool) agent.Dialect {
	type tally struct {
		dialect agent.Dialect
		keys    int
		first   doc.Value
	}
	var found [4]tally // in the order of agent.Dialects
	api := isOpenAPI(root)
	for m := range root.Each() {
		if api && m.Key() == "servers" {
			continue
		}
		if i := slices.Index(agent.Dialects, ownerOf(m)); i >= 0 {
			if found[i].keys++; found[i].keys == 1 {
				found[i].dialect, found[i].first = agent.Dialects[i], m
			}
		}
	}
	slices.SortStableFunc(found[:], func(a, b tally) int { return b.keys - a.keys })
	switch best, second := found[0], found[1]; {
	case best.keys > second.keys:
		return best.dialect
	case r == nil || !complete:
	case best.keys > 0:
		r.Report(diag.MixedDialects, second.first.KeyPlace(), "", "%s is a key of %s, but %s is one of %s",
			diag.Quote(second.first.Key()), second.dialect, diag.Quote(best.first.Key()), best.dialect)
	default:
		r.Report(diag.UnknownDialect, root.Head(), unknownHint(root), "no key of this file belongs to a known dialect")
	}
	return ""
}

// isOpenAPI reports whether a file is an OpenAPI description, which has servers like a Matrix manifest.
func isOpenAPI(root doc.Value) bool {
	return root.Get("openapi").Is(doc.String) && root.Get("info").Is(doc.Object)
}

// isSchema reports whether a file is a JSON Schema.
func isSchema(root doc.Value) bool {
	_, address, _ := strings.Cut(root.Get("$schema").Text(), "://")
	return strings.HasPrefix(address, "json-schema.org/")
}

func unknownHint(root doc.Value) string {
	if isSchema(root) {
		return "this is a JSON Schema, not a manifest"
	}
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
		all = append(all, formats[d].keys...)
	}
	looked := 0
	for m := range root.Each() {
		if looked++; looked > 64 {
			break // not a manifest with a typing mistake
		}
		if hint := diag.DidYouMean(m.Key(), all); hint != "" && len(m.Key()) > 3 {
			return fmt.Sprintf("for %s: %s", diag.Quote(m.Key()), hint)
		}
	}
	return "name the dialect with --dialect " + strings.Join(words(agent.Dialects), "|")
}
