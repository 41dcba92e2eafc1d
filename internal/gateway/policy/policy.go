// Package policy permits or forbids calls by agents of every dialect, according to the user's own rules. The rules
// are written in Cedar.
//
// # Effects
//
// A GPARS agent can make only the calls that a rule permits. Agents of other dialects need no permit, because their
// manifest already allows the calls. For these agents, rules can only forbid calls. A forbid rule wins over every
// permit rule.
//
// A rule cannot be evaluated if, for example, an argument is missing or has another type. A forbid rule that cannot
// be evaluated is treated as matching. A permit rule that cannot be evaluated permits nothing. A missing or unusual
// argument therefore never allows a call.
//
// # Entities
//
// The principal is Agent::"NAME", where NAME is the name under which the agent is registered. The attribute id is the
// id in the manifest. A rule about the id alone would apply to every manifest that claims it. The resource is
// Tool::"<server>/<tool>" in Server::"<server>". The server is an alias, a registry id, a native namespace, or the
// agent's own NAME for tools without a server. A tool is also in Scope::"<server>/<scope>" for every scope that the
// user or the catalogue maps to the tool. A scope that is not mapped covers no tool.
//
// The principal is in Group::"NAME" for every group of the caller. Groups and other attributes of the caller come from
// a verified credential ([identity.Attributes]), never from a client, an agent or an argument.
//
// # Arguments
//
// context.arguments contains the arguments of the call, converted from JSON to Cedar (context.go). The arguments can
// name paths, hosts and databases, which are called places. context.paths, context.hosts, context.databases and
// context.path_of contain the places, and the folders and domains around the places (places.go).
//
// A path, URL or host has one canonical spelling. A call with any other spelling is refused before a rule is
// evaluated (canonical.go). The check applies to a string in three cases:
//   - The argument name declares a place (path, file, dir, url, host, …), and a rule reads the argument or all places
//     of this kind.
//   - A rule compares the string with a path or URL, as in context.arguments.x like "/data/*".
//   - A rule reads the string through context.path_of.
//
// If a rule reads places, ambit also reads other strings that look like a path or URL. Such a string may be prose or
// source code. ambit then normalizes the segments, and refuses only characters that disguise a separator.
//
// A relative path is resolved against the server's working folder and every absolute path in the call. Forbid rules see
// each resulting path. No permit rule about folders matches a relative path. If a rule reads paths and no argument
// declares a folder, such as cwd or root, a call with a relative path is refused.
//
// A rule applies to every spelling of an argument name. For example, Amount matches amount, and dryRun matches
// dry_run. An object with two spellings of a name is refused if rules read the name or if it declares a place. The call
// and the rule may spell a name differently. A forbid rule then applies if it matches with either spelling. A permit
// rule applies only if it matches with both.
//
// # Speed and reload
//
// For each agent and tool, [Live] selects the rules that can apply, and the parts of the context that these rules
// read. Live caches the selection. A call evaluates only the selected rules and builds only the selected parts.
//
// Live checks the policy file for changes before a call. A revocation therefore takes effect in every running
// process. If the file becomes unusable, the last good rules stay in force and Live reports the problem. If the file
// is unusable at the start, every call is refused.
package policy

import (
	"context"
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

// The entity types in Cedar.
const (
	agentType  = types.EntityType("Agent")
	serverType = types.EntityType("Server")
	toolType   = types.EntityType("Tool")
	scopeType  = types.EntityType("Scope")
	groupType  = types.EntityType("Group")
)

// callAction is the only action.
var callAction = types.NewEntityUID("Action", "call")

// maxFile is the maximum size of a policy file in bytes.
const maxFile = 4 << 20

// Rules contains the rules of one policy file. It is immutable.
type Rules struct {
	file string
	list []*rule
	// groups lists the groups that appear in rules, sorted. The other groups of a caller cannot change a decision.
	groups []string
	// reads contains the parts of the context that the rules read.
	reads part
}

type rule struct {
	id     types.PolicyID
	forbid bool
	cedar  *cedar.Policy
	ast    *ast.Policy
	uses   usage
	groups []string // the groups that the rule names
	name   string   // the name of the rule in messages
	// permits is the message for a call that the rule permits.
	permits string
	line    int
	start   int // offset in the file where the rule begins, including its annotations
}

// Parse parses the text of a policy file. The file name is used in messages.
func Parse(file string, text []byte) (*Rules, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are allowed", file, len(text), maxFile)
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		return nil, syntaxError(file, err)
	}
	r := &Rules{file: file}
	for i, p := range list {
		one := &rule{
			id: types.PolicyID(fmt.Sprintf("rule%d", i)), forbid: p.Effect() == cedar.Forbid,
			cedar: p, ast: (*ast.Policy)(p.AST()), line: p.Position().Line, start: p.Position().Offset,
		}
		one.name = one.title(p.Annotations())
		one.permits = one.name + " of " + filepath.Base(file) + " permits the call"
		one.uses = usageOf(one.ast)
		one.groups = groupsIn(one.ast)
		r.groups = append(r.groups, one.groups...)
		r.reads |= one.uses.parts
		r.list = append(r.list, one)
	}
	slices.Sort(r.groups)
	r.groups = slices.Compact(r.groups)
	return r, nil
}

// SyntaxError reports a syntax error in a policy file and its position.
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

// parserWords matches an error message of Cedar's parser and captures the position and the reason.
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

// Len returns the number of rules. A nil Rules has no rules.
func (r *Rules) Len() int {
	if r == nil {
		return 0
	}
	return len(r.list)
}

// withoutPermits returns a copy of r that contains only the forbid rules.
func (r *Rules) withoutPermits() *Rules {
	forbids := slices.DeleteFunc(slices.Clone(r.list), func(one *rule) bool { return !one.forbid })
	return &Rules{r.file, forbids, r.groups, r.reads}
}

// title returns the name of the rule for messages. The name consists of the effect, the @id if there is one, and the
// line.
func (r *rule) title(notes cedar.Annotations) string {
	effect := "permit"
	switch {
	case r.forbid:
		effect = "forbid"
	case notes["ambit"] == grantMark:
		effect = "grant"
	}
	if id := notes["id"]; id != "" {
		effect += fmt.Sprintf(" %q", string(id))
	}
	return fmt.Sprintf("%s (line %d)", effect, r.line)
}

func (r *rule) String() string { return r.name }

// fileName returns the base name of the policy file.
func (r *Rules) fileName() string { return filepath.Base(r.file) }

// subject describes the agent and the tool of a call.
type subject struct {
	agent, id, dialect, server, tool, sideEffect string
}

// view contains the rules and entities for one subject.
type view struct {
	rules     rules // the rules whose scope matches, in file order
	uses      usage
	principal types.EntityUID
	resource  types.EntityUID
	entities  types.EntityMap
	base      string // the folder against which relative paths are resolved; empty if unknown
	// ceiling is the view of a tool that has only the scopes that the agent's manifest requests. It contains no forbid
	// rules. It is nil if the manifest requests every scope of the tool.
	ceiling           *view
	covered           string // a description of the scopes that cover the tool
	hint, unpermitted string // the hint and the message for a call that no rule permits
}

// view selects the rules that can apply to a subject whose caller is in the given groups, and builds the entities.
func (r *Rules) view(s subject, scopes, groups []string) *view {
	v := &view{
		principal: types.NewEntityUID(agentType, types.String(s.agent)),
		resource:  types.NewEntityUID(toolType, types.String(s.server+"/"+s.tool)),
		uses:      newUsage(),
	}
	server := types.NewEntityUID(serverType, types.String(s.server))
	parents := []types.EntityUID{server}
	covered := make([]types.Value, len(scopes))
	for i, scope := range scopes {
		covered[i] = types.String(scope)
		parents = append(parents, types.NewEntityUID(scopeType, types.String(s.server+"/"+scope)))
	}
	who := []types.EntityUID{v.principal}
	for _, group := range groups {
		who = append(who, types.NewEntityUID(groupType, types.String(group)))
	}
	v.entities = types.EntityMap{
		v.principal: {UID: v.principal, Parents: types.NewEntityUIDSet(who[1:]...), Attributes: types.NewRecord(types.RecordMap{
			"name": types.String(s.agent), "id": types.String(s.id), "dialect": types.String(s.dialect),
		})},
		v.resource: {UID: v.resource, Parents: types.NewEntityUIDSet(parents...), Attributes: types.NewRecord(types.RecordMap{
			"name": types.String(s.tool), "server": types.String(s.server),
			"side_effect": types.String(s.sideEffect), "scopes": types.NewSet(covered...),
		})},
		callAction: {UID: callAction},
	}
	for _, p := range slices.Concat(parents, who[1:]) {
		v.entities[p] = types.Entity{UID: p}
	}
	line := append([]types.EntityUID{v.resource}, parents...)
	for _, one := range r.list {
		if !one.forbid && s.dialect != string(agent.GPARS) {
			continue // the agent needs no permit for its calls
		}
		if fits(one.ast.Principal, who) &&
			fits(one.ast.Action, []types.EntityUID{callAction}) && fits(one.ast.Resource, line) {
			v.rules = append(v.rules, one)
			v.uses.add(one.uses)
		}
	}
	return v
}

// fits reports whether the scope of a rule matches the first entity in a list. The other elements of the list are the
// entity's ancestors.
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
	return true // let Cedar handle an unknown kind of scope
}

// failure is a rule that could not be evaluated, with the reason.
type failure struct {
	rule *rule
	why  string
}

// verdict is the result of evaluating all rules.
type verdict struct {
	forbids rules
	broken  []failure // forbid rules that could not be evaluated; they are treated as matching
	permits rules     // empty if a forbid rule matched
	failed  []failure // permit rules that could not be evaluated; they permit nothing
	// unrequested lists permit rules that match only with a scope that the manifest does not request; they permit nothing.
	unrequested rules
}

// denies reports whether a rule forbids the call.
func (v *verdict) denies() bool { return len(v.forbids)+len(v.broken) > 0 }

// rules is a list of rules that Cedar can evaluate.
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

func (r rules) find(id types.PolicyID) *rule {
	return r[slices.IndexFunc(r, func(one *rule) bool { return one.id == id })]
}

// decide evaluates the rules of a view for a call. A grant must not give an agent more than its manifest requests. So a
// permit rule applies only if it matches twice: with all scopes of the tool, and with only the requested scopes. The
// second match alone is not enough, because a rule can permit tools that lack a certain scope. Forbid rules see all
// scopes.
func (v *view) decide(ctx context.Context, m callInfo, arguments []byte) (verdict, error) {
	found, err := v.evaluate(ctx, m, arguments)
	if err != nil || v.ceiling == nil || len(found.permits) == 0 {
		return found, err
	}
	within, err := v.ceiling.evaluate(ctx, m, arguments)
	if err != nil {
		return verdict{}, err
	}
	for _, one := range found.permits {
		if !slices.Contains(within.permits, one) {
			found.unrequested = append(found.unrequested, one)
		}
	}
	found.permits = slices.DeleteFunc(found.permits, func(one *rule) bool { return slices.Contains(found.unrequested, one) })
	return found, nil
}

// evaluate evaluates the rules of a view for a call, without the view's ceiling. A rule and the call may spell the name
// of an argument differently, and the tool may accept either spelling. A forbid rule applies if it matches with either
// spelling. A permit rule applies only if it matches with both.
func (v *view) evaluate(ctx context.Context, m callInfo, arguments []byte) (verdict, error) {
	f, err := v.gather(ctx, m, arguments, false)
	if err != nil {
		return verdict{}, err
	}
	found := f.judge()
	if !f.renamed || found.denies() {
		return found, nil
	}
	if f, err = v.gather(ctx, m, arguments, true); err != nil {
		return verdict{}, err
	}
	sent := f.judge()
	sent.permits = slices.DeleteFunc(sent.permits, func(one *rule) bool { return !slices.Contains(found.permits, one) })
	return sent, nil
}

// judge evaluates the rules of a view with Cedar.
func (f *facts) judge() verdict {
	v := f.view
	decision, said := cedar.Authorize(v.rules, v.entities, cedar.Request{
		Principal: v.principal, Action: callAction, Resource: v.resource, Context: f.context(v.uses.parts),
	})
	var out verdict
	for _, e := range said.Errors {
		one := v.rules.find(e.PolicyID)
		if one.forbid {
			out.broken = append(out.broken, failure{one, describeError(e.Message)})
		} else {
			out.failed = append(out.failed, failure{one, describeError(e.Message)})
		}
	}
	for _, reason := range said.Reasons {
		if one := v.rules.find(reason.PolicyID); decision == cedar.Deny {
			out.forbids = append(out.forbids, one)
		} else {
			out.permits = append(out.permits, one)
		}
	}
	return out
}

// describeError describes an evaluation error without quoting any value from the call.
func describeError(message string) string {
	const missing = "does not have the attribute `"
	if _, attribute, ok := strings.Cut(message, missing); ok {
		attribute, _, _ = strings.Cut(attribute, "`")
		return "the call has no " + attribute
	}
	switch {
	case strings.Contains(message, "overflow"):
		return "a number in the calculation became too large"
	case strings.Contains(message, "type error"):
		return "a value does not have the type that the rule expects"
	case strings.Contains(message, "does not exist"):
		return "the rule names an entity that does not exist"
	}
	return "a value could not be read"
}

// subjectOf returns the subject of calls from an agent to a tool. The agent is registered under the given name.
func subjectOf(a *agent.Agent, name string, t *agent.Tool) subject {
	return subject{
		agent: name, id: a.ID, dialect: string(a.Dialect),
		server: ServerOf(name, t), tool: t.Name, sideEffect: string(t.SideEffect),
	}
}
