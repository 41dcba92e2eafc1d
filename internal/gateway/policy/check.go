package policy

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
	"golang.org/x/net/idna"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Severity is the severity of a problem.
type Severity string

// The severities. A rule with an error is still in force: a forbid that fails forbids,
// a permit that fails permits nothing, and a place that never occurs ([NeverThere])
// matches nothing.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is a problem of a rule.
type Problem struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Line     int      `json:"line"`
	Rule     string   `json:"rule"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint"`
}

// Known is a registered agent and its name.
type Known struct {
	Name  string
	Agent *agent.Agent
}

// Checking is the input of a check besides the rules.
type Checking struct {
	// Declared maps the arguments in the user's schema to their types.
	Declared map[string]string
	// Agents are the registered agents. If it is empty, no rule counts as unused.
	Agents    []Known
	Scopes    Scopes
	Catalogue Catalogue
}

// Check returns the problems of the rules, in the order of the rules.
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
		one.checkTypes(c.Declared, add)
		one.checkText(add)
		one.checkSpelling(add)
		if by, how := r.shadow(i); by != nil {
			add(Shadowed, Warning, "remove one of them", "it never decides anything: %s %s", by, how)
		}
		one.checkUse(c, add)
		if _, whole := grantOf(one); !whole && one.cedar.Annotations()["ambit"] == mark {
			add(EditedGrant, Warning, `remove @ambit("grant") to keep the rule as your own`,
				"ambit grant wrote it and it was edited since: ambit revoke does not remove it")
		}
	}
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return all
}

type adder func(code string, severity Severity, hint, format string, args ...any)

// checkTypes validates a rule against the schema.
func (r *rule) checkTypes(declared map[string]string, add adder) {
	e := expect(r.ast, declared)
	for _, problem := range e.problems {
		add(TwoTypes, Error, "an argument has one type; use it with one type", "%s", problem)
	}
	s, err := schemaFor(e.arguments.schema(), e.pathOf)
	if err != nil {
		add(NotInSchema, Error, "", "its arguments match no schema: %v", err)
		return
	}
	found := flat(validate.New(s).Policy("", r.ast))
	for i, problem := range found {
		if i > 0 && strings.HasPrefix(problem.Error(), "unable to find an applicable action") {
			continue // a consequence of an earlier problem
		}
		r.typeProblem(problem.Error(), len(e.problems) > 0, add)
	}
}

// typeProblem reports a finding of the validator.
func (r *rule) typeProblem(message string, reported bool, add adder) {
	const unguarded = "unable to guarantee safety of access to optional attribute `"
	switch {
	case strings.HasPrefix(message, unguarded):
		name, _, _ := strings.Cut(strings.TrimPrefix(message, unguarded), "`")
		where, last := "context", name
		if at := strings.LastIndexByte(name, '.'); at >= 0 {
			where, last = "context."+name[:at], name[at+1:]
		}
		effect := "a permit that fails permits nothing"
		if r.forbid {
			effect = "a forbid that fails counts as matched"
		}
		add(NoGuard, Warning, fmt.Sprintf("write %s has %s && … before it", where, last),
			"it uses %s without a has before it; if it is absent the rule fails, and %s", quote("context."+name), effect)
	case strings.Contains(message, "extension constructors may not be called with non-literal expressions"):
		effect := "permits nothing"
		if r.forbid {
			effect = "forbids"
		}
		add(NotInSchema, Warning, "", "it converts an argument to an address, number or time; if that fails, it %s", effect)
	case reported && strings.Contains(message, "type"):
		// The same problem again.
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

// nearPart returns a hint that names the closest part of the context, if any is close.
func nearPart(name string) string {
	if near := diag.Closest(name, slices.Sorted(maps.Keys(partNames))); near != "" {
		return "did you mean context." + near + "?"
	}
	return ""
}

func flat(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range many.Unwrap() {
			all = append(all, flat(one)...)
		}
		return all
	}
	return []error{err}
}

// checkText finds paths and URLs that are compared as text.
func (r *rule) checkText(add adder) {
	for _, c := range r.ast.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			var side ast.IsNode
			text := ""
			switch n := n.(type) {
			case ast.NodeTypeHas:
				if name := string(n.Value); isContext(n.Arg) && partNames[name] == 0 {
					effect := "has is always false"
					if c.Condition == ast.ConditionWhen && leading(c.Body) == n {
						effect = "a rule that requires it first matches nothing"
					}
					add(NotInSchema, Error, cmp.Or(nearPart(name), inSchema), "there is never a %s: %s", quote("context."+name), effect)
				}
			case ast.NodeTypeLike:
				side, text = n.Arg, strings.Trim(string(n.Value.MarshalCedar()), `"`)
			case ast.NodeTypeEquals:
				side, text = n.Left, textOf(n.Right)
			case ast.NodeTypeNotEquals:
				side, text = n.Left, textOf(n.Right)
			case ast.NodeTypeContainsAll:
				access, ok := n.Right.(ast.NodeTypeAccess)
				if ok && isContext(access.Arg) && contextSets[string(access.Value)] && !r.forbid && !r.checksEmpty(string(access.Value)) {
					add(AllOfNone, Warning, fmt.Sprintf("add !context.%s.isEmpty() && …", access.Value),
						"it also permits calls in which context.%s is empty", access.Value)
				}
			}
			if !isArgument(side) {
				return true
			}
			switch {
			case urlStart.MatchString(text):
				add(RawText, Warning, "use context.hosts, context.hosts_any_under or context.hosts_all_under",
					"it compares a URL as text, so it misses other arguments and other schemes")
			case startsLikePath.MatchString(text) || startsAtHome.MatchString(text):
				add(RawText, Warning, "use context.paths_any_under in a forbid, context.paths_all_under or context.path_of in a permit",
					"it compares a path as text, so it misses other arguments and relative paths")
			}
			return true
		})
	}
}

// checkSpelling finds texts that a rule compares with paths, hosts or databases and
// that never occur there, because those have one canonical form. A forbid of "/etc/"
// would silently forbid nothing.
func (r *rule) checkSpelling(add adder) {
	for _, c := range r.ast.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			var sides ast.BinaryNode
			switch n := n.(type) {
			case ast.NodeTypeContains:
				sides = n.BinaryNode
			case ast.NodeTypeContainsAny:
				sides = n.BinaryNode
			case ast.NodeTypeContainsAll:
				sides = n.BinaryNode
			default:
				return true
			}
			checkTexts(placesOf(sides.Left), sides.Right, add)
			checkTexts(placesOf(sides.Right), sides.Left, add)
			return true
		})
	}
}

// checkTexts checks the texts of a node that is compared with places.
func checkTexts(kind part, n ast.IsNode, add adder) {
	// A text or set that is the same in every call evaluates without a context.
	v, _ := eval.Eval(n, eval.Env{Entities: types.EntityMap{}})
	for _, text := range textsIn(v) {
		better, why := spell(kind, text)
		if why == "" {
			continue
		}
		hint := "write the full place"
		if better != "" {
			hint = "write " + quote(better)
		}
		add(NeverThere, Error, hint, "%s is never among %s: %s", quote(text), kindWords[kind], why)
	}
}

var kindWords = map[part]string{somePaths: "the paths", someHosts: "the hosts", partDatabases: "the databases"}

// placesOf returns the kind of places that a set in the context contains; 0 for any other node.
func placesOf(n ast.IsNode) part {
	access, ok := n.(ast.NodeTypeAccess)
	if !ok {
		return 0
	}
	if of, ok := access.Arg.(ast.NodeTypeAccess); ok && isPart(of.Arg, "path_of") {
		return somePaths // of one argument
	}
	if !isContext(access.Arg) {
		return 0
	}
	for _, kind := range []part{somePaths, someHosts, partDatabases} {
		if partNames[string(access.Value)]&kind != 0 {
			return kind
		}
	}
	return 0
}

// spell returns the canonical spelling of a place, and why the text itself never occurs
// as one; why is empty if it can occur.
func spell(kind part, text string) (better, why string) {
	switch kind {
	case somePaths:
		clean := path.Clean(strings.ReplaceAll(strings.TrimPrefix(strings.TrimRight(text, "*"), "file://"), `\`, "/"))
		if isDrive(clean) {
			clean = strings.ToUpper(clean[:1]) + clean[1:]
		}
		switch {
		case strings.Contains(text, "*"):
			return clean, "a folder covers everything in it, and there are no patterns"
		case strings.HasPrefix(text, "~"):
			return "", "a path in a home folder must be written in full"
		case pathFlaw(text).what != "":
			return clean, "it " + pathFlaw(text).what
		}
	case someHosts:
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
			return host, "hosts are in lower case and in ASCII, without scheme, port and pattern"
		}
		return "", "a host is only a name or an address"
	case partDatabases:
		if name := foldName(text); name != text {
			return name, "databases are in lower case and without quotes"
		}
	}
	return "", ""
}

// leading returns the first operand of a conjunction.
func leading(n ast.IsNode) ast.IsNode {
	for {
		and, ok := n.(ast.NodeTypeAnd)
		if !ok {
			return n
		}
		n = and.Left
	}
}

// checksEmpty reports whether a rule uses isEmpty on a set.
func (r *rule) checksEmpty(part string) bool {
	found := false
	for _, c := range r.ast.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			if empty, ok := n.(ast.NodeTypeIsEmpty); ok {
				if access, ok := empty.Arg.(ast.NodeTypeAccess); ok && string(access.Value) == part {
					found = true
				}
			}
			return true
		})
	}
	return found
}

func textOf(n ast.IsNode) string {
	if v, ok := n.(ast.NodeValue); ok {
		if s, ok := v.Value.(types.String); ok {
			return string(s)
		}
	}
	return ""
}

// shadow returns a rule that makes this one redundant, and how.
func (r *Rules) shadow(i int) (*rule, string) {
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
			return other, "forbids everything that it permits"
		case other.forbid != one.forbid:
			continue
		case same && covers(one.ast, other.ast) && j > i:
			continue // of two equal rules, the second is redundant
		}
		return other, "covers it"
	}
	return nil, ""
}

// covers reports whether the scope of a includes that of b.
func covers(a, b *ast.Policy) bool {
	return coversScope(a.Principal, b.Principal) && coversScope(a.Action, b.Action) && coversScope(a.Resource, b.Resource)
}

func coversScope(a, b ast.IsScopeNode) bool {
	switch a := a.(type) {
	case ast.ScopeTypeAll:
		return true
	case ast.ScopeTypeEq:
		other, ok := b.(ast.ScopeTypeEq)
		return ok && a.Entity == other.Entity
	case ast.ScopeTypeIn:
		switch b := b.(type) {
		case ast.ScopeTypeEq:
			return within(b.Entity, a.Entity)
		case ast.ScopeTypeIn:
			return within(b.Entity, a.Entity)
		}
	}
	return false
}

// within reports whether the name of a tool or scope shows that it is in a server.
func within(e, in types.EntityUID) bool {
	rest, below := strings.CutPrefix(string(e.ID), string(in.ID)+"/")
	return e == in ||
		in.Type == serverType && (e.Type == toolType || e.Type == scopeType) && below && !strings.Contains(rest, "/")
}

func sameConditions(a, b *ast.Policy) bool {
	return slices.EqualFunc(a.Conditions, b.Conditions, func(x, y ast.ConditionType) bool {
		return x.Condition == y.Condition && ast.Equal(ast.NewNode(x.Body), ast.NewNode(y.Body))
	})
}

// checkUse finds rules that apply to no known tool or registered agent, and permits for
// agents that need none.
func (r *rule) checkUse(c Checking, add adder) {
	if g, ok := grantOf(r); ok && len(c.Scopes.Map(c.Catalogue, g.Server, g.Scope).Tools) == 0 {
		add(ScopeUnknown, Warning, fmt.Sprintf("map it in config.toml: [scopes.%q] %s = [TOOL, …]", g.Server, g.Scope),
			"the scope %s of %s is mapped to no tool, so it covers none", quote(g.Scope), quote(g.Server))
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
		add(NoEffect, Warning, "write a forbid for calls that they should not make", "it permits calls that need no permit: only GPARS agents need one")
	case !applies && named && !slices.ContainsFunc(c.Agents, func(k Known) bool { return types.String(k.Name) == who.Entity.ID }):
		add(Unused, Warning, "list the agents: ambit agents", "no agent is registered as %s", quote(string(who.Entity.ID)))
	case !applies:
		add(Unused, Warning, "list agents and tools: ambit agents, ambit tools", "it applies to no tool of a registered agent")
	}
}

// appliesTo reports whether the resource of a rule can be a tool of an agent. A server
// whose tools are unknown may have any tool.
func (r *rule) appliesTo(k Known) bool {
	for i := range k.Agent.Tools {
		t := &k.Agent.Tools[i]
		server := ServerOf(k.Name, t)
		line := []types.EntityUID{types.NewEntityUID(toolType, types.String(server+"/"+t.Name)), types.NewEntityUID(serverType, types.String(server))}
		if fits(r.ast.Resource, line) || onServer(r.ast.Resource, scopeType, server) {
			return true
		}
	}
	for i := range k.Agent.Requirements {
		server := k.Agent.Requirements[i].Server
		if fits(r.ast.Resource, []types.EntityUID{types.NewEntityUID(toolType, types.String(server)), types.NewEntityUID(serverType, types.String(server))}) ||
			onServer(r.ast.Resource, toolType, server) || onServer(r.ast.Resource, scopeType, server) {
			return true
		}
	}
	return false
}

// onServer reports whether a scope names an entity of this kind on a server.
func onServer(scope ast.IsScopeNode, kind types.EntityType, server string) bool {
	var e types.EntityUID
	switch s := scope.(type) {
	case ast.ScopeTypeEq:
		e = s.Entity
	case ast.ScopeTypeIn:
		e = s.Entity
	default:
		return false
	}
	return e.Type == kind && within(e, types.NewEntityUID(serverType, types.String(server)))
}

// LooksAtArguments reports whether any rule reads arguments.
func (r *Rules) LooksAtArguments() bool {
	return slices.ContainsFunc(r.list, func(one *rule) bool { return one.uses.has(partArguments) })
}
