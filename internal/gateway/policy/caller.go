package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/ambit-run/ambit/internal/store/identity"
)

// groupsIn returns the groups that a rule names. Other groups cannot change the rule's result, because Cedar cannot
// convert a string to an entity.
func groupsIn(p *ast.Policy) []string {
	var groups []string
	add := func(entities ...types.EntityUID) {
		for _, e := range entities {
			if e.Type == groupType && !slices.Contains(groups, string(e.ID)) {
				groups = append(groups, string(e.ID))
			}
		}
	}
	switch s := p.Principal.(type) {
	case ast.ScopeTypeEq:
		add(s.Entity)
	case ast.ScopeTypeIn:
		add(s.Entity)
	case ast.ScopeTypeIsIn:
		add(s.Entity)
	}
	for _, c := range p.Conditions {
		for n := range nodes(c.Body) {
			if v, ok := n.(ast.NodeValue); ok {
				add(entitiesIn(v.Value)...)
			}
		}
	}
	return groups
}

func entitiesIn(v types.Value) (entities []types.EntityUID) {
	switch v := v.(type) {
	case types.EntityUID:
		return []types.EntityUID{v}
	case types.Set:
		for one := range v.All() {
			entities = append(entities, entitiesIn(one)...)
		}
	case types.Record:
		for one := range v.Values() {
			entities = append(entities, entitiesIn(one)...)
		}
	}
	return entities
}

// named returns the caller's groups that at least one rule names, sorted and without duplicates. The result is
// therefore never longer than the list of groups in the policy, even if the caller has very many groups.
func (r *Rules) named(a *identity.Attributes) []string {
	if a == nil || r == nil || len(r.groups) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.groups), func(group string) bool { return !slices.Contains(a.Groups, group) })
}

// groupsKey returns a comparable form of a list of groups.
func groupsKey(groups []string) string { return strings.Join(groups, "\x00") }

// dependsOnCaller reports whether a rule of the view reads properties of the caller from the credential.
func (v *view) dependsOnCaller() bool {
	return v.uses.has(partCredential) || slices.ContainsFunc(v.rules, func(r *rule) bool { return len(r.groups) > 0 })
}

// The attributes issuer and acr are absent if the caller's credential does not contain them.

func (f *facts) issuer() types.Value {
	return f.said(func(a *identity.Attributes) string { return a.Issuer })
}

func (f *facts) acr() types.Value {
	return f.said(func(a *identity.Attributes) string { return a.ACR })
}

func (f *facts) said(what func(*identity.Attributes) string) types.Value {
	if f.m.who == nil || what(f.m.who) == "" {
		return nil
	}
	return types.String(what(f.m.who))
}

func (f *facts) amr() types.Value {
	methods := []types.Value{}
	if f.m.who != nil {
		for _, m := range f.m.who.AMR {
			methods = append(methods, types.String(m))
		}
	}
	return types.NewSet(methods...)
}
