// Package policy decides about calls by the user's own rules, in Cedar, for agents
// of every dialect.
//
// # Effects
//
// A GPARS agent may do what a rule permits. For the other agents the manifest is the
// permit, and rules can only forbid, so that a first grant changes nothing for them. A
// forbid wins over every permit. A forbid that cannot be evaluated counts as matched,
// because an absent or odd argument must not allow anything, and a permit that cannot
// be evaluated permits nothing.
//
// # Entities
//
// The principal is Agent::"NAME", where NAME is the name under which the agent is
// registered; no entity contains anything that the manifest says of itself. The
// resource is Tool::"<server>/<tool>" in Server::"<server>", where the server is an
// alias, a registry id, a native namespace, or the agent's own NAME for tools without a
// server. A tool is also in Scope::"<server>/<scope>" for every scope that the user or
// the catalogue maps to it; a scope that is not mapped covers no tool.
//
// # Arguments
//
// context.arguments contains the arguments as they were sent (context.go converts JSON
// to Cedar). context.paths, context.hosts, context.databases and context.path_of contain
// the places that they name, with everything that these lie under (places.go).
//
// A path, URL or host has one canonical spelling, and a call with any other spelling is
// refused before a rule is asked (canonical.go). That holds for a text
//   - whose name declares it a path, URL or host (path, file, dir, url, host, …), if a
//     rule reads that argument or the derived places of its kind;
//   - that a rule compares with a path or URL: context.arguments.x like "/data/*";
//   - that context.path_of reads.
//
// Under a rule over places, other texts that look like a path or URL are read too. They
// may be prose or source code, so their structure is cleaned, and only characters that
// disguise a separator are refused.
//
// A relative path starts from every folder that the call names (cwd, root, base, …) and
// from the server's work folder. Forbids see it there, no permit over folders holds for
// it, and without such a folder a rule over places refuses it.
//
// Names of arguments that rules use count in every spelling: Amount is amount, dryRun is
// dry_run. Two spellings in one object are refused. If the call and the rule spell a name
// in different ways, a forbid counts if it holds for either, a permit only for both.
//
// # Speed and reload
//
// For each agent and tool, [Live] selects once the rules that can apply and the parts of
// the context that they read; a call evaluates and builds no others. Live checks the file
// on every call, so a revocation counts at once in every process. If the file becomes
// unusable, the last good rules stay in force and Live reports it. If the file is unusable
// at the start, every call is refused.
package policy

import (
	"fmt"
	"iter"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/ambit-run/ambit/agent"
)

// The names of things in Cedar.
const (
	agentType  = types.EntityType("Agent")
	serverType = types.EntityType("Server")
	toolType   = types.EntityType("Tool")
	scopeType  = types.EntityType("Scope")
)

// callAction is the one action.
var callAction = types.NewEntityUID("Action", "call")

// maxFile bounds a policy file.
const maxFile = 4 << 20

// Rules are the rules of one file. They do not change.
type Rules struct {
	file string
	list []*rule
	byID map[types.PolicyID]*rule
}

// rule is one rule.
type rule struct {
	id     types.PolicyID
	forbid bool
	cedar  *cedar.Policy
	ast    *ast.Policy
	uses   uses
	name   string // for messages
	// permits is the reason for a call that the rule permits.
	permits string
	line    int
	// start and end are the offsets of its text.
	start, end int
}

// Parse reads rules. The file's name is for messages.
func Parse(file string, text []byte) (*Rules, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are allowed", file, len(text), maxFile)
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		return nil, syntaxError(file, err)
	}
	spans := statements(text)
	if len(spans) != len(list) {
		return nil, &SyntaxError{File: file, What: fmt.Sprintf("%d rules were parsed, but the text has %d", len(list), len(spans))}
	}
	r := &Rules{file: file, byID: make(map[types.PolicyID]*rule, len(list))}
	for i, p := range list {
		one := &rule{
			id: types.PolicyID(fmt.Sprintf("rule%d", i)), forbid: p.Effect() == cedar.Forbid,
			cedar: p, ast: (*ast.Policy)(p.AST()),
			line: spans[i].line, start: spans[i].start, end: spans[i].end,
		}
		one.name = one.title(p.Annotations())
		one.permits = one.name + " of " + filepath.Base(file) + " permits it"
		one.uses = usesOf(one.ast)
		r.list = append(r.list, one)
		r.byID[one.id] = one
	}
	return r, nil
}

// SyntaxError is the position of a syntax error in a file.
type SyntaxError struct {
	File         string
	Line, Column int // 0 if unknown
	What         string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s is not valid Cedar: %s", e.File, e.What)
	}
	return fmt.Sprintf("%s:%d:%d is not valid Cedar: %s", e.File, e.Line, e.Column, e.What)
}

// parserWords matches a position in the message of Cedar's parser.
var parserWords = regexp.MustCompile(`(?s)parse error at .*?:(\d+):(\d+) (.*)`)

func syntaxError(file string, err error) *SyntaxError {
	e := &SyntaxError{File: file, What: err.Error()}
	if m := parserWords.FindStringSubmatch(err.Error()); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Column, _ = strconv.Atoi(m[2])
		near, what, _ := strings.Cut(m[3], ": ")
		if e.What = what; near == `""` {
			e.What = "the file ends too early"
		}
	}
	return e
}

// Len returns the number of rules; nil has none.
func (r *Rules) Len() int {
	if r == nil {
		return 0
	}
	return len(r.list)
}

// withoutPermits returns the forbid rules.
func (r *Rules) withoutPermits() *Rules {
	rest := &Rules{file: r.file, byID: map[types.PolicyID]*rule{}}
	for _, one := range r.list {
		if one.forbid {
			rest.list = append(rest.list, one)
			rest.byID[one.id] = one
		}
	}
	return rest
}

// title names the rule for people: its @id if it has one, and its place.
func (r *rule) title(notes cedar.Annotations) string {
	effect := "permit"
	switch {
	case r.forbid:
		effect = "forbid"
	case notes["ambit"] == mark:
		effect = "grant"
	}
	if id := notes["id"]; id != "" {
		effect += fmt.Sprintf(" %q", string(id))
	}
	return fmt.Sprintf("%s (line %d)", effect, r.line)
}

func (r *rule) String() string { return r.name }

// short returns the base name of the file.
func (r *Rules) short() string { return filepath.Base(r.file) }

// subject is the agent and the tool of a call: the parts that are the same for every call.
type subject struct {
	agent, dialect, server, tool, sideEffect string
}

// view has the rules and entities for one subject.
type view struct {
	rules             rules // the rules whose scope matches, in order
	uses              uses
	principal         types.EntityUID
	resource          types.EntityUID
	entities          types.EntityMap
	base              string // the folder that relative paths are read from, if it is known
	covered           string // which scopes cover the tool, in words
	hint, unpermitted string // what to do if nothing permits the call, and that nothing does
}

// view selects the rules that can apply to a subject, and builds its entities.
func (r *Rules) view(s subject, scopes []string) *view {
	v := &view{
		principal: types.NewEntityUID(agentType, types.String(s.agent)),
		resource:  types.NewEntityUID(toolType, types.String(s.server+"/"+s.tool)),
		uses:      newUses(),
	}
	server := types.NewEntityUID(serverType, types.String(s.server))
	parents := []types.EntityUID{server}
	covered := make([]types.Value, len(scopes))
	for i, scope := range scopes {
		covered[i] = types.String(scope)
		parents = append(parents, types.NewEntityUID(scopeType, types.String(s.server+"/"+scope)))
	}
	v.entities = types.EntityMap{
		v.principal: {UID: v.principal, Attributes: types.NewRecord(types.RecordMap{
			"name": types.String(s.agent), "dialect": types.String(s.dialect),
		})},
		v.resource: {UID: v.resource, Parents: types.NewEntityUIDSet(parents...), Attributes: types.NewRecord(types.RecordMap{
			"name": types.String(s.tool), "server": types.String(s.server),
			"side_effect": types.String(s.sideEffect), "scopes": types.NewSet(covered...),
		})},
		callAction: {UID: callAction},
	}
	for _, p := range parents {
		v.entities[p] = types.Entity{UID: p}
	}
	line := append([]types.EntityUID{v.resource}, parents...)
	for _, one := range r.list {
		if !one.forbid && s.dialect != string(agent.GPARS) {
			continue // the manifest is the permit
		}
		if fits(one.ast.Principal, []types.EntityUID{v.principal}) &&
			fits(one.ast.Action, []types.EntityUID{callAction}) && fits(one.ast.Resource, line) {
			v.rules = append(v.rules, one)
			v.uses.add(one.uses)
		}
	}
	return v
}

// fits reports whether the scope of a rule matches line[0], an entity that is followed by
// its ancestors.
func fits(scope ast.IsScopeNode, line []types.EntityUID) bool {
	in := func(e types.EntityUID) bool { return slices.Contains(line, e) }
	switch s := scope.(type) {
	case ast.ScopeTypeAll:
		return true
	case ast.ScopeTypeEq:
		return line[0] == s.Entity
	case ast.ScopeTypeIn:
		return in(s.Entity)
	case ast.ScopeTypeInSet:
		return slices.ContainsFunc(s.Entities, in)
	case ast.ScopeTypeIs:
		return line[0].Type == s.Type
	case ast.ScopeTypeIsIn:
		return line[0].Type == s.Type && in(s.Entity)
	}
	return true // Cedar evaluates other scopes
}

// failure is a rule that could not be evaluated, and why.
type failure struct {
	rule *rule
	why  string
}

// verdict is the result of all rules.
type verdict struct {
	forbids rules
	broken  []failure // forbids that could not be evaluated, and forbid all the same
	permits rules     // none where a forbid matched
	failed  []failure // permits that could not be evaluated, and permit nothing
}

// denies reports whether a rule forbids the call.
func (v *verdict) denies() bool { return len(v.forbids)+len(v.broken) > 0 }

// rules is the list of rules that Cedar evaluates.
type rules []*rule

func (r rules) All() iter.Seq2[types.PolicyID, *cedar.Policy] {
	return func(yield func(types.PolicyID, *cedar.Policy) bool) {
		for _, one := range r {
			if !yield(one.id, one.cedar) {
				return
			}
		}
	}
}

// decide evaluates the rules of a view on a call. If rules spell a name of an argument
// in another way than the call, the tool may read it or not: a forbid then counts in
// either case, and a permit only in both.
func (r *Rules) decide(v *view, m moment, arguments []byte) (verdict, error) {
	f, err := v.gather(m, arguments, false)
	if err != nil {
		return verdict{}, err
	}
	found := r.judge(f)
	if !f.respelt || found.denies() {
		return found, nil
	}
	if f, err = v.gather(m, arguments, true); err != nil {
		return verdict{}, err
	}
	sent := r.judge(f)
	sent.permits = slices.DeleteFunc(sent.permits, func(one *rule) bool { return !slices.Contains(found.permits, one) })
	return sent, nil
}

// judge evaluates the rules of a view with Cedar.
func (r *Rules) judge(f *facts) verdict {
	v := f.view
	decision, said := cedar.Authorize(v.rules, v.entities, cedar.Request{
		Principal: v.principal, Action: callAction, Resource: v.resource, Context: f.context(v.uses.parts),
	})
	var out verdict
	for _, e := range said.Errors {
		one := r.byID[e.PolicyID]
		if one.forbid {
			out.broken = append(out.broken, failure{one, plainly(e.Message)})
		} else {
			out.failed = append(out.failed, failure{one, plainly(e.Message)})
		}
	}
	for _, reason := range said.Reasons {
		if one := r.byID[reason.PolicyID]; decision == cedar.Deny {
			out.forbids = append(out.forbids, one)
		} else {
			out.permits = append(out.permits, one)
		}
	}
	return out
}

// plainly describes an evaluation error without quoting a value of the call.
func plainly(message string) string {
	const missing = "does not have the attribute `"
	if _, attribute, ok := strings.Cut(message, missing); ok {
		attribute, _, _ = strings.Cut(attribute, "`")
		return "there is no " + attribute
	}
	switch {
	case strings.Contains(message, "overflow"):
		return "a number became too large"
	case strings.Contains(message, "type error"):
		return "a value is of another type than the rule expects"
	case strings.Contains(message, "does not exist"):
		return "it names an entity that does not exist"
	}
	return "a value could not be read"
}

// span is the position of a rule's text: from its first annotation or word to its
// semicolon.
type span struct{ start, end, line int }

// statements finds the rules in a text without parsing them, so that one rule can be
// removed and everything around it stays. Comments before a rule are not part of it.
func statements(text []byte) []span {
	var all []span
	open, line := -1, 1
	var at int // line of open
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
		case c == ' ' || c == '\t' || c == '\r':
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		default:
			if open < 0 {
				open, at = i, line
			}
			switch c {
			case '"':
				for i++; i < len(text) && text[i] != '"'; i++ {
					switch text[i] {
					case '\\':
						i++
					case '\n':
						line++
					}
				}
			case ';':
				all = append(all, span{open, i + 1, at})
				open = -1
			}
		}
	}
	return all
}

// subjectOf returns what rules see of a call of a tool apart from its arguments.
func subjectOf(a *agent.Agent, name string, t *agent.Tool) subject {
	return subject{
		agent: name, dialect: string(a.Dialect), server: ServerOf(name, t), tool: t.Name, sideEffect: string(t.SideEffect),
	}
}
