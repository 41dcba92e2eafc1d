package flow

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxYAML is the maximum size of a text that is parsed as YAML. The parser is slow, so a longer text is running text.
const maxYAML = 64 << 10

// startsYAML matches the first line of a mapping or of a list of mappings.
var startsYAML = regexp.MustCompile(`^(- )?[A-Za-z_][A-Za-z0-9_]{0,40}:( |\r?\n|$)`)

// hiddenInYAML matches lines of YAML that are no values: comments and directives. A model reads these lines too.
var hiddenInYAML = regexp.MustCompile(`(?m)^\s*#|^%`)

// hasParagraph reports whether an unindented line follows an empty line. Programs do not write such YAML, but a mail
// with its header can look like YAML up to that line.
func hasParagraph(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\n')
		if at < 0 {
			return false
		}
		line := bytes.TrimLeft(text[at+1:], " \t\r")
		if text = text[at+1:]; len(line) > 1 && line[0] == '\n' && bytes.IndexByte([]byte(" \t\r\n-"), line[1]) < 0 {
			return true
		}
	}
}

// mappings splits YAML: a mapping or a list of mappings, or several of them with lines of hyphens between them. It
// returns false for any other text.
func (s *splitter) mappings(text []byte) bool {
	if len(text) > maxYAML || !startsYAML.Match(text) || hasParagraph(text) || hiddenInYAML.Match(text) {
		return false
	}
	before := s.shape
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var root yaml.Node
		err := d.Decode(&root)
		if err == io.EOF {
			return true
		}
		s.texts = append(s.texts, nil)
		if err != nil || !isMappings(&root) || !s.yaml("", &root, 0) {
			s.shape = before
			return false
		}
	}
}

// isMappings reports whether a YAML document is a mapping or a list of mappings.
func isMappings(document *yaml.Node) bool {
	if len(document.Content) != 1 {
		return false
	}
	root := document.Content[0]
	return root.Kind == yaml.MappingNode || root.Kind == yaml.SequenceNode &&
		!slices.ContainsFunc(root.Content, func(n *yaml.Node) bool { return n.Kind != yaml.MappingNode })
}

// yaml splits a YAML node. It returns false if the node contains an alias, which parsers can resolve differently, or text
// that is no value, such as a comment.
func (s *splitter) yaml(name string, n *yaml.Node, depth int) bool {
	if depth > maxNested || !isPlainYAML(n) {
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
			s.name([]byte(key))
			if !isPlainYAML(n.Content[i]) || !s.yaml(key, n.Content[i+1], depth+1) {
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

// isPlainYAML reports whether a node has no anchor, no comment and no tag of its own.
func isPlainYAML(n *yaml.Node) bool {
	return n.Anchor+n.HeadComment+n.LineComment+n.FootComment == "" &&
		(n.Kind == yaml.DocumentNode || strings.HasPrefix(n.ShortTag(), "!!"))
}
