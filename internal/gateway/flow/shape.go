package flow

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"gopkg.in/yaml.v3"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// shape is a result, split into fields and running text.
type shape struct {
	atoms []uint64
	texts [][]byte
}

// The limits of a field. Everything longer is running text.
const (
	maxAtom       = 80
	maxAtomTokens = 5
	maxYAML       = 64 << 10 // the parser for YAML is slow, so longer texts are running text
	maxAtoms      = 20_000
	maxNested     = 64
)

// textNames are names of fields whose content is running text, however short it is.
var textNames = map[string]bool{}

func init() {
	for name := range strings.FieldsSeq(`body content contents subject title description message messages text comment comments
note notes summary review reviews location snippet bio markdown html excerpt caption headline abstract readme memo reason
instructions prompt log output stdout stderr answer reply about details detail transcript remark remarks topic label purpose
reference`) {
		textNames[name] = true
	}
}

// split splits a result. If opaque is set, one author may have written the whole result, such as a file or a page, so
// its fields are not trusted.
func split(result []byte, opaque bool) shape {
	s := &splitter{opaque: opaque}
	s.opaque = opaque || distrusted(rawjson.Lookup(result, "_meta"))
	if v := rawjson.Lookup(result, "structuredContent"); v != nil {
		s.json("", v, 0)
	}
	rawjson.Elements(rawjson.Lookup(result, "content"), func(item jsontext.Value) { s.content(item) })
	if len(s.texts) == 0 && len(s.atoms) == 0 {
		s.texts = append(s.texts, result) // The text is not the result of a tool, so the client may read any part of it.
	}
	return s.shape
}

// distrusted reports whether labels in the metadata of a result mark its content as untrusted. ambit adds such a label
// to a result with an injection. A server can lower the trust in its own results, but never raise it.
func distrusted(meta jsontext.Value) bool {
	if len(meta) == 0 {
		return false
	}
	if rawjson.Lookup(meta, call.Untrusted) != nil {
		return true
	}
	for _, path := range [][]string{{"ifc", "integrity"}, {"integrity"}} {
		if label, ok := rawjson.Text(rawjson.Lookup(meta, path...)); ok && label != "trusted" && label != "high" {
			return true
		}
	}
	return string(rawjson.Lookup(meta, "untrusted")) == "true"
}

// dropEchoes removes the texts that repeat an argument of the call. Such text comes from the caller.
func (s *shape) dropEchoes(arguments []leaf) {
	own := make(map[uint64]bool, len(arguments))
	for _, l := range arguments {
		own[l.words.key()] = true
	}
	s.texts = slices.DeleteFunc(s.texts, func(text []byte) bool {
		w := wordsOf(text)
		return own[w.key()]
	})
}

type splitter struct {
	shape
	opaque bool
}

// content splits one item of a result.
func (s *splitter) content(item []byte) {
	if text, ok := rawjson.Text(rawjson.Lookup(item, "text")); ok {
		s.document([]byte(text))
		return
	}
	resource := rawjson.Lookup(item, "resource")
	if text, ok := rawjson.Text(rawjson.Lookup(resource, "text")); ok {
		s.texts = append(s.texts, []byte(text)) // a person wrote the document that a resource contains
		return
	}
	for _, name := range []string{"uri", "name", "title", "description"} {
		if text, ok := rawjson.Text(rawjson.Lookup(item, name)); ok {
			s.leaf(name, []byte(text))
		}
	}
}

// startsYAML matches the first line of a mapping or of a list of mappings.
var startsYAML = regexp.MustCompile(`^(- )?[A-Za-z_][A-Za-z0-9_]{0,40}:( |\r?\n|$)`)

// document splits a text. Only a text that consists entirely of JSON or YAML has fields.
func (s *splitter) document(text []byte) {
	trimmed := bytes.TrimSpace(text)
	switch {
	case s.opaque:
		s.texts = append(s.texts, text)
	case len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && rawjson.Valid(trimmed):
		s.json("", trimmed, 0)
	case len(trimmed) <= maxYAML && startsYAML.Match(trimmed):
		var root yaml.Node
		if yaml.Unmarshal(trimmed, &root) != nil || !s.yaml("", &root, 0) {
			s.texts = append(s.texts, text)
		}
	default:
		s.leaf("", text)
	}
}

func (s *splitter) json(name string, value []byte, depth int) {
	if depth > maxNested {
		s.texts = append(s.texts, value)
		return
	}
	switch value[0] {
	case '{':
		rawjson.Members(value, func(name string, v jsontext.Value) {
			if len(name) > maxAtom {
				s.texts = append(s.texts, []byte(name))
			}
			s.json(name, v, depth+1)
		})
	case '[':
		rawjson.Elements(value, func(v jsontext.Value) { s.json(name, v, depth+1) })
	case '"':
		if text, ok := rawjson.Text(value); ok {
			s.leaf(name, []byte(text))
			return
		}
		s.texts = append(s.texts, value)
	case 't', 'f', 'n':
	default:
		s.leaf(name, value)
	}
}

// yaml splits a node. It returns false if the node has an alias, which readers can resolve differently.
func (s *splitter) yaml(name string, n *yaml.Node, depth int) bool {
	if depth > maxNested {
		return false
	}
	switch n.Kind {
	case yaml.AliasNode:
		return false
	case yaml.ScalarNode:
		s.leaf(name, []byte(n.Value))
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if len(key) > maxAtom || strings.ContainsAny(key, " \n") {
				s.texts = append(s.texts, []byte(key))
			}
			if !s.yaml(key, n.Content[i+1], depth+1) {
				return false
			}
		}
	default:
		for _, c := range n.Content {
			if !s.yaml(name, c, depth+1) {
				return false
			}
		}
	}
	return true
}

// leaf adds a short value to the fields, and any other value to the running text.
func (s *splitter) leaf(name string, value []byte) {
	if s.opaque || len(value) > maxAtom || bytes.IndexByte(value, '\n') >= 0 || isTextName(name) || len(s.atoms) >= maxAtoms ||
		len(bytes.Fields(value)) > maxAtomTokens {
		s.texts = append(s.texts, value)
		return
	}
	w := wordsOf(value)
	s.atoms = append(s.atoms, w.key())
}

func isTextName(name string) bool {
	if textNames[name] {
		return true
	}
	for _, part := range nameParts(name) {
		if textNames[part] {
			return true
		}
	}
	return false
}
