package flow

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"gopkg.in/yaml.v3"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// shape is a result, split into fields and running text.
type shape struct {
	atoms  []uint64 // the keys of the fields
	values [][]byte // the fields
	texts  [][]byte // nil separates the objects of a list
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
// its fields are not trusted. The caller frees the shape.
func split(result []byte, opaque bool) *splitter {
	s := splitters.Get().(*splitter)
	var content, structured, meta jsontext.Value
	rawjson.Members(result, func(name string, v jsontext.Value) {
		switch name {
		case "content":
			content = v
		case "structuredContent":
			structured = v
		case "_meta":
			meta = v
		}
	})
	s.opaque = opaque || distrusted(meta)
	if structured != nil {
		s.json(structured, false, 0)
	}
	rawjson.Elements(content, func(item jsontext.Value) {
		s.texts = append(s.texts, nil)
		s.content(item)
	})
	if !s.hasText() && len(s.atoms) == 0 {
		s.texts = append(s.texts, result) // not the form of a result, so a client may read anything in it
	}
	return s
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

// hasText reports whether a result has running text.
func (s *shape) hasText() bool {
	return slices.ContainsFunc(s.texts, func(text []byte) bool { return len(text) > 0 })
}

// dropEchoes removes the texts that repeat an argument of the call. Such text comes from the caller.
func (s *splitter) dropEchoes(arguments []leaf) {
	own := make(map[uint64]bool, len(arguments))
	for _, l := range arguments {
		own[l.words.key()] = true
	}
	s.texts = slices.DeleteFunc(s.texts, func(text []byte) bool {
		return own[keyOf(text, &s.view)]
	})
}

type splitter struct {
	shape
	opaque bool
	names  map[string]bool // whether a name, in quotes, is the name of running text
	buffer []byte          // for texts with escapes
	view   view.View
}

// splitters keeps splitters with their buffers for the next result.
var splitters = sync.Pool{New: func() any { return &splitter{names: map[string]bool{}} }}

// free ends the use of a splitter and of the texts in it.
func (s *splitter) free() {
	if cap(s.buffer)+cap(s.view.Text) > maxKept || len(s.names) > maxNames {
		return
	}
	clear(s.texts)
	clear(s.values)
	clear(s.names)
	s.atoms, s.values, s.texts, s.buffer = s.atoms[:0], s.values[:0], s.texts[:0], s.buffer[:0]
	splitters.Put(s)
}

const maxNames = 1000

// text returns the value of a JSON string. The value is valid until the splitter is freed.
func (s *splitter) text(raw []byte) (value []byte, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true
	}
	from := len(s.buffer)
	long, err := jsontext.AppendUnquote(s.buffer, raw)
	if err != nil {
		return nil, false
	}
	s.buffer = long
	return long[from:], true
}

// content splits one item of a result.
func (s *splitter) content(item []byte) {
	if text, ok := s.text(rawjson.Lookup(item, "text")); ok {
		s.document(text)
		return
	}
	resource := rawjson.Lookup(item, "resource")
	if text, ok := s.text(rawjson.Lookup(resource, "text")); ok {
		s.texts = append(s.texts, text) // a resource is a document that a person wrote
		return
	}
	for _, name := range []string{"uri", "name", "title", "description"} {
		if text, ok := s.text(rawjson.Lookup(item, name)); ok {
			s.leaf(text, textNames[name])
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
		s.json(trimmed, false, 0)
	case len(trimmed) <= maxYAML && startsYAML.Match(trimmed):
		var root yaml.Node
		if yaml.Unmarshal(trimmed, &root) != nil || !s.yaml("", &root, 0) {
			s.texts = append(s.texts, text)
		}
	default:
		s.leaf(text, false)
	}
}

// json splits a value. If inText is set, the name of the value is the name of running text.
func (s *splitter) json(value []byte, inText bool, depth int) {
	if depth > maxNested {
		s.texts = append(s.texts, value)
		return
	}
	switch value[0] {
	case '{':
		w := rawjson.Walk(value)
		for name, v, ok := w.Member(); ok; name, v, ok = w.Member() {
			s.json(v, s.named(name), depth+1)
		}
	case '[':
		w := rawjson.Walk(value)
		for v, ok := w.Element(); ok; v, ok = w.Element() {
			if v[0] == '{' {
				s.texts = append(s.texts, nil)
			}
			s.json(v, inText, depth+1)
		}
	case '"':
		if text, ok := s.text(value); ok {
			s.leaf(text, inText)
			return
		}
		s.texts = append(s.texts, value)
	case 't', 'f', 'n':
	default:
		s.leaf(value, inText)
	}
}

// named reports whether a name, in quotes, is the name of running text. A long name is running text itself.
func (s *splitter) named(name []byte) bool {
	inText, known := s.names[string(name)]
	if !known {
		if len(name) > maxAtom {
			s.texts = append(s.texts, name)
		}
		text, _ := rawjson.Text(name)
		if inText = isTextName(text); len(name) <= maxAtom {
			s.names[string(name)] = inText
		}
	}
	return inText
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
		s.leaf([]byte(n.Value), isTextName(name))
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
			if c.Kind == yaml.MappingNode {
				s.texts = append(s.texts, nil)
			}
			if !s.yaml(name, c, depth+1) {
				return false
			}
		}
	}
	return true
}

// leaf adds one value: to the fields if it is short, and to the running text in all other cases.
func (s *splitter) leaf(value []byte, inText bool) {
	if s.opaque || inText || len(value) > maxAtom || len(s.atoms) >= maxAtoms || !isAtom(value) {
		s.texts = append(s.texts, value)
		return
	}
	s.atoms, s.values = append(s.atoms, keyOf(value, &s.view)), append(s.values, value)
}

// isAtom reports whether a value is one line of a few words.
func isAtom(value []byte) bool {
	n := 0
	for range bytes.FieldsSeq(value) {
		n++
	}
	return n <= maxAtomTokens && bytes.IndexByte(value, '\n') < 0
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
