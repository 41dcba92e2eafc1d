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

// format describes the manifests of one dialect.
type format struct {
	keys  []string // top-level keys that only this dialect has
	rules []*diag.Rule
	toml  bool // whether manifests of the dialect are TOML
	parse parseFunc
	// parseLoopback replaces parse if Options.LoopbackHTTP is set. It is nil if the option does not affect the
	// dialect.
	parseLoopback parseFunc
	// parseNoTools replaces parse if Options.NoTools is set. It is nil if the option does not affect the dialect.
	parseNoTools parseFunc
	namePath     []string // the keys that lead from the root to the agent's name
	from         func(*agent.Agent, *convert.Notes) (any, error)
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
	all[agent.Matrix].parseNoTools = func(v doc.Value, r *diag.Reporter) compiler { return matrix.ParseNoTools(v, r) }
	return all
}()

// newFormat wraps the functions of a dialect. The wrappers hide M, the dialect's own manifest type.
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

// nameOf returns the value that contains the agent's name.
func (f *format) nameOf(root doc.Value) doc.Value {
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

// Rules returns the rules that all dialects share, followed by the rules of each dialect.
func Rules() []*Rule {
	rules := slices.Clone(diag.Shared)
	for _, d := range agent.Dialects {
		rules = append(rules, formats[d].rules...)
	}
	return rules
}

// Detect returns the dialect of a manifest. It counts the top-level keys that belong to only one dialect. The dialect
// with the most such keys wins. If there is a tie, Detect returns "".
func Detect(name string, src []byte) agent.Dialect {
	r, readable := decode(name, string(src), false)
	if !readable {
		return ""
	}
	t, _ := parseTree(r, "")
	return detect(t.Root(), nil, true)
}

// otherFiles describes files that people pass to ambit by mistake. The key identifies the kind of file. The text is
// the hint for the user.
var otherFiles = []struct{ key, what string }{
	{"mcpServers", "this is an MCP client's configuration; to convert it to a manifest, run: ambit import FILE"},
	{"mcp_servers", "this is an MCP client's configuration; to convert it to a manifest, run: ambit import FILE"},
	{"openapi", "this is an OpenAPI description; to convert it to a manifest, run: ambit import FILE"},
	{"dependencies", "this is the manifest of a package, not of an agent"},
	{"lockfileVersion", "this is a package manager's lock file"},
	{"packages", "this is a registry's server.json; to convert it to a manifest, run: ambit import FILE"},
	{"remotes", "this is a registry's server.json; to convert it to a manifest, run: ambit import FILE"},
	{"capabilities", "ambit does not support GPARS drafts with \"capabilities\"; use \"required_mcp_servers\""},
}

// owners and ownersTOML map a top-level key to the only dialect that has this key. The first map is for JSON files, and
// the second map is for TOML files.
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

// ownerOf returns the only dialect with this top-level key, or "" if no dialect or several dialects have the key.
func ownerOf(m doc.Value) agent.Dialect {
	if m.TOML() {
		return ownersTOML[m.Key()]
	}
	if m.Key() == "agent" && !m.Is(doc.String) {
		return "" // "agent" belongs to Matrix only if its value is a string
	}
	return owners[m.Key()]
}

// detect implements Detect for a parsed file. If no dialect wins, detect reports the reason to r. It reports nothing
// if r is nil, or if a syntax error makes the tree incomplete.
func detect(root doc.Value, r *diag.Reporter, complete bool) agent.Dialect {
	type tally struct {
		dialect agent.Dialect
		keys    int
		first   doc.Value
	}
	var found [4]tally
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
		r.Report(diag.MixedDialects, second.first.KeyPlace(), "", "the key %s belongs to %s, but the key %s belongs to %s",
			diag.Quote(second.first.Key()), second.dialect, diag.Quote(best.first.Key()), best.dialect)
	default:
		r.Report(diag.UnknownDialect, root.Head(), unknownHint(root), "no key in the file belongs to a known dialect")
	}
	return ""
}

// isOpenAPI reports whether the file is an OpenAPI description. In such a file, the key "servers" belongs to OpenAPI,
// not to Matrix.
func isOpenAPI(root doc.Value) bool {
	return root.Get("openapi").Is(doc.String) && root.Get("info").Is(doc.Object)
}

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
		return "Covenant manifests are TOML; put the table [agent] in a .toml file"
	}
	var all []string
	for _, d := range agent.Dialects {
		all = append(all, formats[d].keys...)
	}
	looked := 0
	for m := range root.Each() {
		if looked++; looked > 64 {
			break // stop here, because a manifest has far fewer top-level keys
		}
		if hint := diag.DidYouMean(m.Key(), all); hint != "" && len(m.Key()) > 3 {
			return fmt.Sprintf("for %s: %s", diag.Quote(m.Key()), hint)
		}
	}
	return "specify the dialect with --dialect " + strings.Join(words(agent.Dialects), "|")
}
