package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// checkSpelling finds texts that are looked for among paths, hosts or databases
// and are never there, since those are held in one form: a forbid of "/etc/" would
// forbid nothing, and nobody would notice.
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

// checkTexts looks at the texts of a node that are looked for among places.
func checkTexts(kind part, n ast.IsNode, add adder) {
	for _, text := range textsOf(n) {
		better, why := spell(kind, text)
		if why == "" {
			continue
		}
		hint := "write the place itself"
		if better != "" {
			hint = "write " + quote(better)
		}
		add(NeverThere, Error, hint, "%s is not how %s are held: %s", quote(text), kindWords[kind], why)
	}
}

var kindWords = map[part]string{somePaths: "the paths", someHosts: "the hosts", partDatabases: "the databases"}

// placesOf is what a set of texts in the context holds; 0 if the node is none.
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

// textsOf are the texts that a node stands for in every call, in order.
func textsOf(n ast.IsNode) []string {
	var texts []string
	// A text or set that is the same in every call evaluates without a context.
	v, _ := eval.Eval(n, eval.Env{Entities: types.EntityMap{}})
	switch v := v.(type) {
	case types.String:
		texts = append(texts, string(v))
	case types.Set:
		for one := range v.All() {
			if text, ok := one.(types.String); ok {
				texts = append(texts, string(text))
			}
		}
	}
	slices.Sort(texts)
	return texts
}

// spell is how a text would stand among places of a kind, and why it does not
// stand there as it is; why is empty if it can, or if there are no places.
func spell(kind part, text string) (better, why string) {
	switch kind {
	case somePaths:
		clean := cleanPath(slashed(withoutScheme(strings.TrimRight(text, "*"))))
		switch {
		case strings.Contains(text, "*"):
			return clean, "it is no pattern, and a folder stands for all that is in it"
		case strings.HasPrefix(text, "~"):
			return "", "other spellings of the same folder are not caught by it"
		case clean != text:
			return clean, "they have no slash at the end and no detours"
		}
	case someHosts:
		name := strings.TrimPrefix(strings.TrimPrefix(text, "*"), ".")
		if _, after, ok := strings.Cut(name, "://"); ok {
			name, _, _ = strings.Cut(after, "/")
		}
		if hosts := cleanHosts(name); !slices.Contains(hosts, text) {
			if len(hosts) == 0 {
				return "", "they are names or addresses alone"
			}
			return hosts[0], "they are in lower case and in ASCII, without scheme, port and pattern"
		}
	case partDatabases:
		if name := foldName(text); name != text {
			return name, "they are in lower case and without quotes"
		}
	}
	return "", ""
}
