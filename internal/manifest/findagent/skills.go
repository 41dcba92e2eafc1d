package findagent

import (
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

func (p *parser) skills(o *read.Object, m *Manifest) {
	if v := o.Get("skills_source", read.Optional); p.Is(v, doc.Object) {
		s := p.Object(v)
		m.SkillsSource = &SkillsSource{}
		m.SkillsSource.Kind, _ = s.Enum("kind", read.Required, []string{"r2"})
		m.SkillsSource.Key = p.relativePath(s.Get("key", read.Required), ruleSkillsKey)
		s.Done()
	}
	list := o.List("skills", read.Optional)
	var seen read.Seen
	var ids []string
	for v := range list.Each() {
		s := p.skill(v)
		if s.ID != "" && !seen.Add(s.ID) {
			p.Report(ruleDuplicateSkill, v.Get("id").Place(), "", "another skill already has the id %s", diag.Quote(s.ID))
		}
		ids = append(ids, s.ID)
		m.Skills = append(m.Skills, s)
	}
	if router, ok := o.Text("router_skill_id", read.Optional); ok {
		if m.RouterSkillID = router; !slices.Contains(ids, router) {
			p.Report(ruleRouter, o.Value().Get("router_skill_id").Place(), p.DidYouMean(router, ids),
				"there is no skill with the id %s", diag.Quote(router))
		}
	}
}

func (p *parser) skill(v doc.Value) agent.Skill {
	var s agent.Skill
	o := p.Object(v)
	if id, ok := o.String("id", read.Required); ok {
		if isSkillID(id) {
			s.ID = id
		} else {
			p.Report(ruleSkillID, v.Get("id").Place(), "", "%s is not a valid skill id", diag.Quote(id))
		}
	}
	s.Name, _ = o.Text("name", read.Required)
	s.Description, _ = o.String("description", read.Optional)
	s.Tags = o.Texts("tags", read.Optional)
	o.Done()
	return s
}

func isSkillID(s string) bool {
	lower := func(c byte) bool { return 'a' <= c && c <= 'z' || isDigit(c) }
	return len(s) <= 64 && isWord(s, lower, func(c byte) bool { return lower(c) || c == '_' || c == '-' })
}

// relativePath returns the relative path in a value. If the path is invalid or leads out of its folder, relativePath
// reports a violation of the given rule and returns "".
func (p *parser) relativePath(v doc.Value, rule *diag.Rule) string {
	if !p.Is(v, doc.String) {
		return ""
	}
	s := v.Text()
	what, hint := "", ""
	switch {
	case s == "":
		what = "the path is empty"
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7F }):
		what = "the path contains a control character"
	case strings.Contains(s, "://"):
		what = "the path is a URL"
	case strings.Contains(s, `\`):
		what, hint = "the path contains a backslash", "write / instead"
	case s[0] == '/' || len(s) > 1 && s[1] == ':' && isLetter(s[0]):
		what = "the path is absolute"
	case s == ".." || strings.HasPrefix(s, "../") || strings.HasSuffix(s, "/..") || strings.Contains(s, "/../"):
		what = `the path leads out of its folder with ".."`
	default:
		return s
	}
	p.Report(rule, v.Place(), hint, "%s: %s", what, diag.Quote(s))
	return ""
}
