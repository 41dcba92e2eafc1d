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

// room is what a dialect offers.
type room struct {
	keys  []string
	rules []*diag.Rule
	toml  bool // it is written in TOML, not JSON
	parse parseFunc
	// develop is parse with Options.LoopbackHTTP; nil where that means nothing.
	develop parseFunc
	// named leads to what the agent is called.
	named []string
	from  func(*agent.Agent, *convert.Notes) (any, error)
}

var rooms = map[agent.Dialect]*room{
	agent.Matrix:    newRoom([]string{"agent"}, matrix.Keys, matrix.Rules, matrix.Parse, matrix.From),
	agent.GPARS:     newRoom([]string{"id"}, gpars.Keys, gpars.Rules, gpars.Parse, gpars.From),
	agent.Covenant:  inTOML(newRoom([]string{"agent", "id"}, covenant.Keys, covenant.Rules, covenant.Parse, covenant.From)),
	agent.FindAgent: developed(newRoom([]string{"name"}, findagent.Keys, findagent.Rules, findagent.Parse, findagent.From)),
}

// newRoom makes a room of a dialect's functions, which know its own type M.
func newRoom[M compiler](
	named, keys []string, rules []*diag.Rule, parse func(doc.Value, *diag.Reporter) M, from func(*agent.Agent, *convert.Notes) (M, error),
) *room {
	return &room{
		named: named, keys: keys, rules: rules,
		parse: func(v doc.Value, r *diag.Reporter) compiler { return parse(v, r) },
		from:  func(a *agent.Agent, n *convert.Notes) (any, error) { return from(a, n) },
	}
}

func inTOML(r *room) *room {
	r.toml = true
	return r
}

func developed(r *room) *room {
	r.develop = func(v doc.Value, rep *diag.Reporter) compiler { return findagent.ParseLoopback(v, rep) }
	return r
}

// name is the value that says what the agent is called.
func (r *room) name(root doc.Value) doc.Value {
	for _, key := range r.named {
		root = root.Get(key)
	}
	return root
}

// parser is what reads a manifest with these options.
func (r *room) parser(o Options) parseFunc {
	if o.LoopbackHTTP && r.develop != nil {
		return r.develop
	}
	return r.parse
}

func (r *room) ext() string {
	if r.toml {
		return ".toml"
	}
	return ".json"
}

func (r *room) encode(typed any) ([]byte, error) {
	if r.toml {
		return toml.Marshal(typed)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(typed)
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
	{"openapi", "this is an OpenAPI description; make a manifest of it: ambit import FILE"},
	{"dependencies", "this is a package's own manifest, not an agent's"},
	{"lockfileVersion", "this is a package manager's lock file"},
	{"packages", "this is a registry's server.json; import it to get a manifest"},
	{"remotes", "this is a registry's server.json; import it to get a manifest"},
	{"capabilities", "the later GPARS form with capabilities is not supported; list required_mcp_servers"},
}

// owners and ownersTOML tell which dialect alone has a top-level key, in JSON
// and in TOML.
var owners, ownersTOML = ownKeys(false), ownKeys(true)

func ownKeys(toml bool) map[string]agent.Dialect {
	keys := map[string]agent.Dialect{}
	for d, room := range rooms {
		if room.toml == toml {
			for _, key := range room.keys {
				keys[key] = d
			}
		}
	}
	return keys
}

// ownerOf is the dialect that alone has this member of a root; empty if none
// does.
func ownerOf(m doc.Value) agent.Dialect {
	if m.TOML() {
		return ownersTOML[m.Key()]
	}
	if m.Key() == "agent" && !m.Is(doc.String) {
		return "" // Matrix has it as a text, other formats as an object
	}
	return owners[m.Key()]
}

// detect counts the telling keys. It reports to r, if there is one, what it
// cannot decide; of a file that could only be read in part, it says nothing.
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

// isOpenAPI reports whether a file is an OpenAPI description. It has servers as Matrix
// has; any other key of a dialect makes it a manifest all the same.
func isOpenAPI(root doc.Value) bool {
	return root.Get("openapi").Is(doc.String) && root.Get("info").Is(doc.Object)
}

// isSchema reports whether a file is a JSON Schema, by the schema that it names as
// its own.
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
	return "name the dialect with --dialect " + strings.Join(words(agent.Dialects), "|")
}
