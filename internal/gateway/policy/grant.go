package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/ambit-run/ambit/internal/store/home"
)

// Grant allows an agent to use a scope of a server. In the policy file, a grant is a rule with the annotation
// @ambit("grant"). ambit uses the annotation to find and revoke the grant. All other rules belong to the user, and
// ambit never changes them.
type Grant struct {
	Agent string
	// ID is the id in the agent's manifest. A grant with an id does not apply to another agent that takes the name. If
	// ID is empty, the grant applies to every agent of that name.
	ID     string
	Server string
	Scope  string
	// By is the owner who made the grant. It is empty if unknown.
	By string
	// At is the time of the grant. It is zero if unknown.
	At time.Time
	// Expires is the zero time if the grant does not expire.
	Expires time.Time
}

// grantMark is the value of the @ambit annotation in rules that ambit generated from a grant.
const grantMark = "grant"

// Rule returns the grant as a Cedar rule.
func (g Grant) Rule() string {
	condition := fmt.Sprintf("resource.scopes.contains(%s)", literal(g.Scope))
	if g.ID != "" {
		condition = fmt.Sprintf("principal.id == %s && %s", literal(g.ID), condition)
	}
	if !g.Expires.IsZero() {
		condition += fmt.Sprintf(" && context.time < datetime(%s)", literal(stamp(g.Expires)))
	}
	at := ""
	if !g.At.IsZero() {
		at = fmt.Sprintf("\n@granted_at(%s)", literal(stamp(g.At)))
	}
	return fmt.Sprintf(`@ambit(%s)
@granted_by(%s)%s
permit (
  principal == Agent::%s,
  action == Action::"call",
  resource in Server::%s
)
when { %s };`, literal(grantMark), literal(g.By), at, literal(g.Agent), literal(g.Server), condition)
}

const stampForm = "2006-01-02T15:04:05.000Z"

func stamp(t time.Time) string { return t.UTC().Format(stampForm) }

// literal returns s as a Cedar string literal.
func literal(s string) string { return string(types.String(s).MarshalCedar()) }

// grantOf returns the grant from which ambit generated a rule. The second result is false if a user wrote or edited the
// rule.
func grantOf(r *rule) (Grant, bool) {
	notes := r.cedar.Annotations()
	if notes["ambit"] != grantMark || r.forbid {
		return Grant{}, false
	}
	who, ok1 := r.ast.Principal.(ast.ScopeTypeEq)
	where, ok2 := r.ast.Resource.(ast.ScopeTypeIn)
	if !ok1 || !ok2 || len(r.ast.Conditions) != 1 {
		return Grant{}, false
	}
	g := Grant{Agent: string(who.Entity.ID), Server: string(where.Entity.ID), By: string(notes["granted_by"])}
	g.At, _ = time.Parse(stampForm, string(notes["granted_at"]))
	for n := range r.nodes() {
		switch n := n.(type) {
		case ast.NodeTypeEquals:
			g.ID = textOf(n.Right)
		case ast.NodeTypeContains:
			g.Scope = cmp.Or(textOf(n.Right), g.Scope)
		case ast.NodeTypeExtensionCall:
			if len(n.Args) == 1 && n.Name == "datetime" {
				g.Expires, _ = time.Parse(stampForm, textOf(n.Args[0]))
			}
		case ast.NodeValue:
			if d, ok := n.Value.(types.Datetime); ok {
				g.Expires = d.Time().UTC()
			}
		}
	}
	var written cedar.Policy
	if err := written.UnmarshalCedar([]byte(g.Rule())); err != nil {
		return Grant{}, false
	}
	return g, bytes.Equal(written.MarshalCedar(), r.cedar.MarshalCedar())
}

// Grants returns the grants among the rules.
func (r *Rules) Grants() []Grant {
	var all []Grant
	for _, one := range r.list {
		if g, ok := grantOf(one); ok {
			all = append(all, g)
		}
	}
	return all
}

// ErrChanged means that a rule was not removed because a user edited it.
var ErrChanged = errors.New("the rule was edited by hand")

// Add adds grants to the text of a policy file. It replaces an existing grant of the same scope only if the expiry time
// or the id differs. The second result reports whether the text changed.
func Add(file string, text []byte, grants []Grant) (out []byte, changed bool, err error) {
	out = text
	for _, g := range grants {
		for _, name := range []string{g.Agent, g.ID, g.Server, g.Scope, g.By} {
			if !utf8.ValidString(name) {
				return nil, false, errors.New("a name in the grant is not valid UTF-8")
			}
		}
		rules, err := Parse(file, out)
		if err != nil {
			return nil, false, err
		}
		at := rules.find(g)
		switch {
		case at == nil:
			out = appendRule(out, g.Rule())
		default:
			if was, _ := grantOf(at); was.ID == g.ID && was.Expires.Equal(g.Expires.Truncate(time.Millisecond)) {
				continue
			}
			out = slices.Concat(out[:at.start], []byte(g.Rule()), out[at.endOffset(out):])
		}
		changed = true
	}
	if changed {
		if _, err := Parse(file, out); err != nil {
			return nil, false, fmt.Errorf("the grant cannot be written: %w", err)
		}
	}
	return out, changed, nil
}

// Remove removes grants from the text of a policy file and returns the removed grants. It returns [ErrChanged] if a
// user edited the rule of a grant.
func Remove(file string, text []byte, grants []Grant) (out []byte, removed []Grant, err error) {
	out = text
	for _, g := range grants {
		rules, err := Parse(file, out)
		if err != nil {
			return nil, nil, err
		}
		at := rules.find(g)
		if at == nil {
			if other := rules.findEdited(g); other != nil {
				return nil, nil, fmt.Errorf("%w: %s grants the scope %s of server %s to %s, but differs from the "+
					"rule that ambit wrote", ErrChanged, other, g.Scope, g.Server, g.Agent)
			}
			continue
		}
		was, _ := grantOf(at)
		out, removed = removeRule(out, at), append(removed, was)
	}
	return out, removed, nil
}

// find returns the rule that ambit generated from a grant with the agent, server and scope of g. It returns nil if
// there is no such rule.
func (r *Rules) find(g Grant) *rule {
	for _, one := range r.list {
		if is, ok := grantOf(one); ok && is.Agent == g.Agent && is.Server == g.Server && is.Scope == g.Scope {
			return one
		}
	}
	return nil
}

// findEdited returns a rule that ambit generated for the agent, server and scope of g, and that a user edited later. It
// returns nil if there is no such rule.
func (r *Rules) findEdited(g Grant) *rule {
	for _, one := range r.list {
		if _, whole := grantOf(one); whole || one.cedar.Annotations()["ambit"] != grantMark {
			continue
		}
		text := string(one.cedar.MarshalCedar())
		if strings.Contains(text, "Agent::"+literal(g.Agent)) && strings.Contains(text, "Server::"+literal(g.Server)) &&
			strings.Contains(text, literal(g.Scope)) {
			return one
		}
	}
	return nil
}

func appendRule(text []byte, rule string) []byte {
	out := slices.Clone(text)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	if len(out) > 0 {
		out = append(out, '\n')
	}
	return append(append(out, rule...), '\n')
}

// endOffset returns the offset after the semicolon that terminates the rule. Semicolons in strings and comments are
// skipped.
func (r *rule) endOffset(text []byte) int {
	for end := r.start; ; {
		at := bytes.IndexByte(text[end:], ';')
		if at < 0 {
			return len(text)
		}
		end += at + 1
		if new(cedar.Policy).UnmarshalCedar(text[r.start:end]) == nil {
			return end
		}
	}
}

// removeRule removes a rule, the line break after it and the empty line before it.
func removeRule(text []byte, r *rule) []byte {
	start, end := r.start, r.endOffset(text)
	if end < len(text) && text[end] == '\n' {
		end++
	}
	if start >= 2 && text[start-1] == '\n' && text[start-2] == '\n' || start == 1 && text[0] == '\n' {
		start--
	}
	return slices.Concat(text[:start], text[end:])
}

// header is the start of a new policy file.
const header = `// This file contains rules for ambit's agents, in Cedar (https://www.cedarpolicy.com).
// To find mistakes in it, run:       ambit policy check
// To see its effect on a call, run:  ambit why PATH TOOL
`

// Edit passes the text of a policy file to a callback and replaces the file with the result. The replacement is atomic:
// a reader sees either the old file or the new file. Concurrent edits wait for each other. If the file does not exist,
// Edit creates it.
func Edit(file string, change func(text []byte) ([]byte, error)) error {
	// If the file is a symbolic link, replace its target and keep the link.
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	guard, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer guard.Close()
	if err := home.Lock(guard); err != nil {
		return fmt.Errorf("%s cannot be locked: %w", file, err)
	}
	text, err := os.ReadFile(file)
	mode := fs.FileMode(0o600)
	switch info, statErr := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		text = []byte(header)
	case err != nil:
		return err
	case statErr == nil:
		mode = info.Mode().Perm()
	}
	out, err := change(text)
	if err != nil || bytes.Equal(out, text) {
		return err
	}
	return home.Replace(file, mode, out)
}
