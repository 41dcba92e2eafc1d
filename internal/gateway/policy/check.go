package policy

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	schema "github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	"golang.org/x/net/idna"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Severity is the severity of a problem.
type Severity string

// The severities of problems. A rule with an error stays in force: if it is a forbid rule that cannot be evaluated, it
// is treated as matching; if it is a permit rule that cannot be evaluated, it permits nothing. A comparison with a
// spelling that never occurs ([NeverThere]) is always false.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one problem in a rule.
type Problem struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Line     int      `json:"line"`
	Rule     string   `json:"rule"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint"`
}

// Known is an agent and the name under which it is registered.
type Known struct {
	Name  string
	Agent *agent.Agent
}

// Checking is the input of [Rules.Check].
type Checking struct {
	// Declared contains the arguments that the user's schema declares.
	Declared schema.RecordType
	// Agents lists the registered agents. If the list is empty, unused rules are not reported.
	Agents    []Known
	Scopes    Scopes
	Catalogue Catalogue
}

// Check returns the problems that it finds in the rules, sorted by line.
func (r *Rules) Check(c Checking) []Problem {
	var all []Problem
	for i, one := range r.list {
		add := func(code string, severity Severity, hint, format string, args ...any) {
			p := Problem{Code: code, Severity: severity, Line: one.line, Rule: one.String(), Hint: hint}
			p.Message = fmt.Sprintf(format, args...)
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
		one.checkAlone(c.Declared, add)
		if by, how := r.shadowedBy(i); by != nil {
			add(Shadowed, Warning, "remove one of the two rules", "the rule never decides anything: %s %s", by, how)
		}
		one.checkUse(c, add)
		if _, whole := grantOf(one); !whole && one.cedar.Annotations()["ambit"] == grantMark {
			add(EditedGrant, Warning, `remove @ambit("grant") to keep the rule as your own`,
				"the rule was edited after ambit grant wrote it, so ambit revoke does not remove it")
		}
	}
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return all
}

// checkAlone reports the problems of a rule that do not depend on other rules or on agents. All problems with the
// severity Error are among them.
func (r *rule) checkAlone(declared schema.RecordType, add adder) {
	r.checkTypes(declared, add)
	r.checkText(add)
	r.checkSpelling(add)
}

// Errors returns only the problems with the severity Error. It is faster than [Rules.Check].
func (r *Rules) Errors() []Problem {
	if r == nil {
		return nil
	}
	var all []Problem
	for _, one := range r.list {
		one.checkAlone(nil, func(code string, severity Severity, hint, format string, args ...any) {
			if severity == Error {
				all = append(all, Problem{code, severity, one.line, one.String(), fmt.Sprintf(format, args...), hint})
			}
		})
	}
	return all
}

type adder func(code string, severity Severity, hint, format string, args ...any)

// checkTypes validates a rule against the schema and the inferred types of arguments.
func (r *rule) checkTypes(declared schema.RecordType, add adder) {
	e := expect(r.ast)
	for _, problem := range e.problems {
		add(TwoTypes, Error, "use the argument with one type only", "%s", problem)
	}
	arguments := e.arguments.record()
	maps.Copy(arguments, declared)
	s, err := schemaFor(arguments, e.pathOf)
	if err != nil {
		add(NotInSchema, Error, "", "no schema fits the arguments that the rule uses: %v", err)
		return
	}
	err = validate.New(s).Policy("", r.ast)
	if err == nil {
		return
	}
	for i, problem := range strings.Split(err.Error(), "\n") {
		if i > 0 && strings.HasPrefix(problem, "unable to find an applicable action") {
			continue // a consequence of an earlier problem
		}
		r.typeProblem(problem, len(e.problems) > 0, add)
	}
}

// typeProblem reports a message of Cedar's validator as a problem. If reported is set, checkTypes has already reported
// the problems with types, so typeProblem skips messages about them.
func (r *rule) typeProblem(message string, reported bool, add adder) {
	const unguarded = "unable to guarantee safety of access to optional attribute `"
	switch {
	case strings.HasPrefix(message, unguarded):
		name, _, _ := strings.Cut(strings.TrimPrefix(message, unguarded), "`")
		where, last := "context", name
		if at := strings.LastIndexByte(name, '.'); at >= 0 {
			where, last = "context."+name[:at], name[at+1:]
		}
		effect := "the rule permits nothing"
		if r.forbid {
			effect = "the rule is treated as matching"
		}
		add(NoGuard, Warning, fmt.Sprintf("write \"%s has %s && …\" before using the attribute", where, last),
			"the rule uses %s without a \"has\" test; if the attribute is absent, %s", quote("context."+name), effect)
	case strings.Contains(message, "extension constructors may not be called with non-literal expressions"):
		effect := "permits nothing"
		if r.forbid {
			effect = "forbids the call"
		}
		add(NotInSchema, Warning, "",
			"the rule converts an argument to an address, number or time; if the conversion fails, the rule %s", effect)
	case reported && strings.Contains(message, "type"):
		// This problem was already reported.
	default:
		hint := ""
		if rest, ok := strings.CutPrefix(message, "attribute `"); ok && strings.Contains(rest, "` in context ") {
			name, _, _ := strings.Cut(rest, "`")
			hint = nearPart(name)
		}
		add(NotInSchema, Error, cmp.Or(hint, inSchema), "%s", message)
	}
}

const inSchema = "list the names that rules can use: ambit policy init --print-schema"

// nearPart returns a hint with the most similar name in the context, or "" if no name is similar.
func nearPart(name string) string {
	var names []string
	for _, p := range partTable {
		names = append(names, string(p.name))
	}
	if near := diag.Closest(name, names); near != "" {
		return "did you mean context." + near + "?"
	}
	return ""
}

// checkText finds paths and URLs that a rule compares as plain text. It also finds "has" tests for attributes that
// never exist, and containsAll tests that pass for an empty set.
func (r *rule) checkText(add adder) {
	for _, c := range r.ast.Conditions {
		for n := range nodes(c.Body) {
			var side ast.IsNode
			text := ""
			switch n := n.(type) {
			case ast.NodeTypeHas:
				if name := string(n.Value); isContext(n.Arg) && partNamed(n.Value) == 0 {
					effect := "this \"has\" test is always false"
					if c.Condition == ast.ConditionWhen && firstOperand(c.Body) == n {
						effect = "the rule never matches, because its condition begins with this \"has\" test"
					}
					add(NotInSchema, Error, cmp.Or(nearPart(name), inSchema),
						"%s does not exist: %s", quote("context."+name), effect)
				}
			case ast.NodeTypeLike:
				side, text = n.Arg, pattern(n)
			case ast.NodeTypeEquals:
				side, text = n.Left, textOf(n.Right)
			case ast.NodeTypeNotEquals:
				side, text = n.Left, textOf(n.Right)
			case ast.NodeTypeContainsAll:
				access, ok := n.Right.(ast.NodeTypeAccess)
				if ok && isContext(access.Arg) && partNamed(access.Value)&placeParts != 0 &&
					!r.forbid && !r.checksEmpty(access.Value) {
					add(AllOfNone, Warning, fmt.Sprintf("add \"!context.%s.isEmpty() && …\"", access.Value),
						"the rule also permits calls in which context.%s is empty", access.Value)
				}
			}
			switch {
			case !isArgument(side):
			case startsURL(text):
				add(RawText, Warning, "use context.hosts, context.hosts_any_under or context.hosts_all_under",
					"the rule compares a URL as text, so it misses other arguments and other schemes")
			case startsLikePath.MatchString(text) || startsAtHome.MatchString(text):
				add(RawText, Warning,
					"use context.paths_any_under to forbid, and context.paths_all_under or context.path_of to permit",
					"the rule compares a path as text, so it misses other arguments and relative paths")
			}
		}
	}
}

// checkSpelling finds paths, hosts and databases in a rule that are not in canonical form. No call contains such a
// spelling, so the comparison never matches. For example, a rule that forbids "/etc/" would silently forbid nothing.
func (r *rule) checkSpelling(add adder) {
	for n := range r.nodes() {
		if sides, ok := sidesOf(n); ok {
			checkTexts(placesOf(sides.Left), sides.Right, add)
			checkTexts(placesOf(sides.Right), sides.Left, add)
		}
	}
}

// checkTexts checks strings that a rule compares with a set of paths, hosts or databases. The first argument is the
// kind of this set. The node n contains the strings.
func checkTexts(kind part, n ast.IsNode, add adder) {
	// A constant string or set can be evaluated without a context.
	v, _ := eval.Eval(n, eval.Env{Entities: types.EntityMap{}})
	for _, text := range textsIn(v) {
		better, why := checkPlace(kind, text)
		if why == "" {
			continue
		}
		hint := "write the full path or host"
		if better != "" {
			hint = "write " + quote(better)
		}
		add(NeverThere, Error, hint, "%s never occurs among %s: %s", quote(text), kindWords[kind], why)
	}
}

var kindWords = map[part]string{partPaths: "the paths", partHosts: "the hosts", partDatabases: "the databases"}

// placesOf returns the kind of a set in the context: a set of paths, hosts or databases. It returns 0 if the node is
// not such a set.
func placesOf(n ast.IsNode) part {
	access, ok := n.(ast.NodeTypeAccess)
	if !ok {
		return 0
	}
	if of, ok := access.Arg.(ast.NodeTypeAccess); ok && isPart(of.Arg, "path_of") {
		return partPaths // the paths of one argument
	}
	if !isContext(access.Arg) {
		return 0
	}
	return partNamed(access.Value) & placeParts
}

// checkPlace checks the spelling of a path, host or database in a rule. Both results are empty if the text can occur in
// a call. If the text can never occur, the second result explains why. The first result is then the canonical spelling,
// or "" if there is none.
func checkPlace(kind part, text string) (better, why string) {
	switch kind {
	case partPaths:
		clean := path.Clean(strings.ReplaceAll(strings.TrimPrefix(strings.TrimRight(text, "*"), "file://"), `\`, "/"))
		if isDrive(clean) {
			clean = strings.ToUpper(clean[:1]) + clean[1:]
		}
		switch {
		case strings.Contains(text, "*"):
			return clean, "there are no wildcards; a folder covers everything in it"
		case strings.HasPrefix(text, "~"):
			return "", "a path in a home folder must be written in full"
		case pathFlaw(text).what != "":
			return clean, "it " + pathFlaw(text).what
		}
	case partHosts:
		if host, f := hostFlaw(text, ""); f.what == "" && host == text {
			break
		}
		name := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(text, "*"), "."))
		if _, after, ok := strings.Cut(name, "://"); ok {
			name, _, _ = strings.Cut(after, "/")
		}
		if ascii, err := idna.Lookup.ToASCII(name); err == nil {
			name = ascii
		}
		if host, f := hostFlaw(name, ""); f.what == "" {
			return host, "hosts are written in lower case and ASCII, without scheme, port or wildcard"
		}
		return "", "a host must be a name or an address"
	case partDatabases:
		if name := foldName(text); name != text {
			return name, "databases are written in lower case and without quotes"
		}
	}
	return "", ""
}

// firstOperand returns the first operand of a conjunction. It returns any other node unchanged.
func firstOperand(n ast.IsNode) ast.IsNode {
	for {
		and, ok := n.(ast.NodeTypeAnd)
		if !ok {
			return n
		}
		n = and.Left
	}
}

// checksEmpty reports whether a rule calls isEmpty on the given part of the context.
func (r *rule) checksEmpty(part types.String) bool {
	for n := range r.nodes() {
		if empty, ok := n.(ast.NodeTypeIsEmpty); ok {
			if access, ok := empty.Arg.(ast.NodeTypeAccess); ok && access.Value == part {
				return true
			}
		}
	}
	return false
}

// nodes returns every node of the rule's conditions.
func (r *rule) nodes() iter.Seq[ast.IsNode] {
	var bodies []ast.IsNode
	for _, c := range r.ast.Conditions {
		bodies = append(bodies, c.Body)
	}
	return nodes(bodies...)
}

func textOf(n ast.IsNode) string {
	if v, ok := n.(ast.NodeValue); ok {
		if s, ok := v.Value.(types.String); ok {
			return string(s)
		}
	}
	return ""
}

// shadowedBy returns a rule that makes rule i redundant, and a phrase that explains why. It returns nil if there is no
// such rule.
func (r *Rules) shadowedBy(i int) (*rule, string) {
	one := r.list[i]
	for j, other := range r.list {
		if i == j || !covers(other.ast, one.ast) {
			continue
		}
		same := sameConditions(other.ast, one.ast)
		switch {
		case len(other.ast.Conditions) > 0 && !same:
			continue
		case other.forbid && !one.forbid:
			return other, "forbids everything that this rule permits"
		case other.forbid != one.forbid:
			continue
		case same && covers(one.ast, other.ast) && j > i:
			continue // of two equal rules, only the second is redundant
		}
		return other, "already covers this rule"
	}
	return nil, ""
}

// covers reports whether the scope of rule a includes the scope of rule b.
func covers(a, b *ast.Policy) bool {
	return coversScope(a.Principal, b.Principal) && coversScope(a.Action, b.Action) && coversScope(a.Resource, b.Resource)
}

func coversScope(a, b ast.IsScopeNode) bool {
	e, alone := entityIn(b)
	switch a.(type) {
	case ast.ScopeTypeAll:
		return true
	case ast.ScopeTypeIn, ast.ScopeTypeInSet:
		return e.Type != "" && fits(a, withServer(e))
	}
	return alone && fits(a, withServer(e))
}

// entityIn returns the entity that a scope names. If the scope names no entity or more than one, the result is the zero
// entity. The second result reports whether the scope matches only that entity.
func entityIn(scope ast.IsScopeNode) (e types.EntityUID, alone bool) {
	switch s := scope.(type) {
	case ast.ScopeTypeEq:
		return s.Entity, true
	case ast.ScopeTypeIn:
		return s.Entity, false
	}
	return e, false
}

// withServer returns a list that starts with the given entity. If the entity is a tool or a scope, the list also
// contains its server, which is the first part of the entity's name.
func withServer(e types.EntityUID) []types.EntityUID {
	at := strings.LastIndexByte(string(e.ID), '/')
	if at < 0 || e.Type != toolType && e.Type != scopeType {
		return []types.EntityUID{e}
	}
	return []types.EntityUID{e, types.NewEntityUID(serverType, e.ID[:at])}
}

func sameConditions(a, b *ast.Policy) bool {
	return slices.EqualFunc(a.Conditions, b.Conditions, func(x, y ast.ConditionType) bool {
		return x.Condition == y.Condition && ast.Equal(ast.NewNode(x.Body), ast.NewNode(y.Body))
	})
}

// checkUse finds rules that do not apply to any tool of a registered agent, grants for scopes that cover no tool, and
// permit rules for agents that need no permit.
func (r *rule) checkUse(c Checking, add adder) {
	if g, ok := grantOf(r); ok && len(c.Scopes.Map(c.Catalogue, g.Server, g.Scope).Tools) == 0 {
		hint := fmt.Sprintf("map the scope in config.toml: [scopes.%q] %s = [TOOL, …]", g.Server, g.Scope)
		add(ScopeUnknown, Warning, hint, "the scope %s of %s is not mapped to any tool, so the grant has no effect",
			quote(g.Scope), quote(g.Server))
	}
	if len(c.Agents) == 0 {
		return
	}
	applies, needed := false, false
	for _, k := range c.Agents {
		principal := []types.EntityUID{types.NewEntityUID(agentType, types.String(k.Name))}
		if fits(r.ast.Principal, principal) && r.appliesTo(k) {
			applies = true
			needed = needed || k.Agent.Dialect == agent.GPARS
		}
	}
	switch who, named := r.ast.Principal.(ast.ScopeTypeEq); {
	case applies && !needed && !r.forbid:
		add(NoEffect, Warning, "write a forbid rule for the calls that the agents should not make",
			"the rule permits calls that need no permit: only GPARS agents need one")
	case !applies && named &&
		!slices.ContainsFunc(c.Agents, func(k Known) bool { return k.Name == string(who.Entity.ID) }):
		add(Unused, Warning, "for a list, run: ambit agents", "no agent is registered as %s", quote(string(who.Entity.ID)))
	case !applies:
		add(Unused, Warning, "to list the names, run ambit agents and ambit tools",
			"the rule does not apply to any tool of a registered agent")
	}
}

// appliesTo reports whether a rule can apply to any tool of an agent. If the tools of a server are unknown, appliesTo
// assumes that the server can have any tool.
func (r *rule) appliesTo(k Known) bool {
	named, _ := entityIn(r.ast.Resource)
	on := func(server string) bool {
		return slices.Contains(withServer(named)[1:], types.NewEntityUID(serverType, types.String(server)))
	}
	for i := range k.Agent.Tools {
		t := &k.Agent.Tools[i]
		tool := types.NewEntityUID(toolType, types.String(ServerOf(k.Name, t)+"/"+t.Name))
		if fits(r.ast.Resource, withServer(tool)) || named.Type == scopeType && on(ServerOf(k.Name, t)) {
			return true
		}
	}
	return slices.ContainsFunc(k.Agent.Requirements, func(q agent.Requirement) bool {
		return on(q.Server) || fits(r.ast.Resource, withServer(types.NewEntityUID(toolType, types.String(q.Server+"/"))))
	})
}

// LooksAtArguments reports whether any rule reads arguments.
func (r *Rules) LooksAtArguments() bool {
	return slices.ContainsFunc(r.list, func(one *rule) bool { return one.uses.has(partArguments) })
}
