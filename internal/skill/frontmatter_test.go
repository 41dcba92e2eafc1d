package skill

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// shown is a front matter and its problems, as tests compare them.
func shown(all string) string {
	var problems []string
	f := readFrontmatter(all, func(line int, warning bool, _, message string) {
		kind := "problem"
		if warning {
			kind = "warning"
		}
		problems = append(problems, fmt.Sprintf("%s %d %s", kind, line, message))
	})
	var b strings.Builder
	for _, f := range f.fields {
		switch f.shape {
		case asText:
			fmt.Fprintf(&b, "%d %s=%q\n", f.line, f.key, f.text)
		default:
			fmt.Fprintf(&b, "%d %s", f.line, f.key)
			for _, e := range f.items {
				fmt.Fprintf(&b, " %d:%s=%q", e.line, e.key, e.text)
			}
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "body %d %q\n", f.line, f.body)
	return b.String() + strings.Join(problems, "\n")
}

func TestReadFrontmatter(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"none", "# Title\n", "body 1 \"# Title\\n\"\n"},
		{"plain", "---\nname: x\n# note\n\nother: a b # why\n---\nbody\n", "2 name=\"x\"\n5 other=\"a b\"\nbody 7 \"body\\n\"\n"},
		{"windows", "---\r\nname: x\r\n---\r\nbody\r\n", "2 name=\"x\"\nbody 4 \"body\\n\"\n"},
		{"goes on", "---\nd: one\n  two\n\n  three\nn: x\n---\n", "2 d=\"one two\\nthree\"\n6 n=\"x\"\nbody 8 \"\"\n"},
		{"quotes", "---\na: \"x: \\\"y\\\" \\u00e9\"\nb: 'it''s' # so\n---\n", "2 a=\"x: \\\"y\\\" é\"\n3 b=\"it's\"\nbody 5 \"\"\n"},
		{"blocks", "---\na: |\n  one\n    two\n\n  three\nb: >-\n  one\n  two\n\n  three\n---\n", "2 a=\"one\\n  two\\n\\nthree\"\n7 b=\"one two\\nthree\"\nbody 13 \"\"\n"},
		{"lists", "---\na: [x, \"y, z\"]\nb:\n  - one\n  - 'two'\nc:\n- three\nd: []\n---\n", "2 a 2:=\"x\" 2:=\"y, z\"\n3 b 4:=\"one\" 5:=\"two\"\n6 c 7:=\"three\"\n8 d\nbody 10 \"\"\n"},
		{"table", "---\nmetadata:\n  tags: git, writing\n  version: \"1.0\"\n---\n", "2 metadata 3:tags=\"git, writing\" 4:version=\"1.0\"\nbody 6 \"\"\n"},
		{"patterns", "---\ndescription:\nglobs: *.ts,src/**/*.{js,ts}\nalwaysApply: false\n---\n", "2 description=\"\"\n3 globs=\"*.ts,src/**/*.{js,ts}\"\n4 alwaysApply=\"false\"\nbody 6 \"\"\n"},
		{"colon", "---\nd: Use when: asked\n---\n", "2 d=\"Use when: asked\"\nbody 4 \"\"\nwarning 2 a text with a colon in it is not YAML without quotes, and some clients skip the file"},
		{"no end", "---\nname: x\n", "body 3 \"\"\nproblem 1 the front matter does not end"},
		{"twice", "---\nname: x\nname: y\n---\n", "2 name=\"x\"\n3 name=\"y\"\nbody 5 \"\"\nproblem 3 there already is a field name"},
		{"no field", "---\njust text\nname: x\n---\n", "3 name=\"x\"\nbody 5 \"\"\nproblem 2 this line is no field"},
		{"tab", "---\nname:\tx\n---\n", "body 4 \"\"\nproblem 2 there is a tab or a character that YAML does not take"},
		{"anchor", "---\na: &x y\nb: *x\n---\n", "2 a=\"&x y\"\n3 b=\"*x\"\nbody 5 \"\"\nproblem 2 a text without quotes cannot start with &\nproblem 3 a text without quotes cannot start with *"},
		{"tag", "---\na: !!binary aGk=\n---\n", "2 a=\"!!binary aGk=\"\nbody 4 \"\"\nproblem 2 a text without quotes cannot start with !"},
		{"object", "---\na: {b: c}\n---\n", "2 a=\"{b: c}\"\nbody 4 \"\"\nproblem 2 a text without quotes cannot start with {\nwarning 2 a text with a colon in it is not YAML without quotes, and some clients skip the file"},
		{"deep", "---\nm:\n  a:\n    b: c\n---\n", "2 m 3:a=\"\"\nbody 6 \"\"\nproblem 3 there is no text\nproblem 4 this line is indented in another way than its neighbours"},
		{"below quotes", "---\na: \"x\"\n  more\n---\n", "2 a=\"x\"\nbody 5 \"\"\nproblem 3 this line belongs to nothing"},
		{"open quotes", "---\na: \"x\n---\n", "2 a=\"\"\nbody 4 \"\"\nproblem 2 the text in quotes cannot be read"},
		{"behind quotes", "---\na: \"x\" y\n---\n", "2 a=\"x\"\nbody 4 \"\"\nproblem 2 there is more behind the text in quotes"},
		{"open list", "---\na: [x\n---\n", "2 a\nbody 4 \"\"\nproblem 2 the list does not end"},
		{"block head", "---\na: |2\n  x\n---\n", "2 a=\"x\"\nbody 5 \"\"\nproblem 2 the head of the block is not known here"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := shown(tt.text); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// Where the reader has nothing to complain of, a YAML reader sees the same.
func FuzzFrontmatter(f *testing.F) {
	for _, seed := range []string{
		"---\nname: x\ndescription: a b # c\nmetadata:\n  tags: git, writing\n---\nbody", "---\na: |\n  one\n    two\n\n  three\nb: >-\n  one\n  two\n\n  three\n---\n",
		"---\na: [x, \"y, z\"]\nb:\n  - one\nc:\n- 'three'\n---\n", "---\nd: one\n  two\n\n  three\n---\n", "---\na: \"\\u00e9\\n\"\nb: 'it''s' # so\n---\n", "---\n---\n", "---\na: >\n\n x\n  y\n\n z\n---\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, all string) {
		clean := true
		got := readFrontmatter(all, func(int, bool, string, string) { clean = false })
		if !got.present && got.body != all {
			t.Fatalf("a text without front matter is cut: %q", got.body)
		}
		if !clean || !got.present || !utf8.ValidString(all) || diag.Hidden(all) != "" || got.field("globs") != nil {
			return
		}
		all = strings.ReplaceAll(all, "\r\n", "\n")
		matter := strings.Join(strings.Split(all, "\n")[1:got.line-2], "\n")
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(matter), &doc); err != nil {
			t.Fatalf("YAML does not take what was taken: %v\n%q", err, matter)
		}
		if len(got.fields) == 0 {
			if len(doc.Content) > 0 && doc.Content[0].Value != "" {
				t.Fatalf("nothing was seen in %q", matter)
			}
			return
		}
		root := doc.Content[0]
		if root.Kind != yaml.MappingNode || len(root.Content) != 2*len(got.fields) {
			t.Fatalf("YAML sees other fields than %+v in %q", got.fields, matter)
		}
		for i, f := range got.fields {
			key, value := root.Content[2*i].Value, root.Content[2*i+1]
			if key != f.key || !same(f, value) {
				t.Fatalf("%s is %+v, to YAML %s: %q (%d parts)\n%q", f.key, f, key, value.Value, len(value.Content), matter)
			}
		}
	})
}

func same(f field, n *yaml.Node) bool {
	trim := func(s string) string { return strings.TrimRight(s, "\n ") }
	switch f.shape {
	case asList:
		if n.Kind != yaml.SequenceNode || len(n.Content) != len(f.items) {
			return false
		}
		for i, e := range f.items {
			if n.Content[i].Kind != yaml.ScalarNode || n.Content[i].Value != e.text {
				return false
			}
		}
		return true
	case asTable:
		if n.Kind != yaml.MappingNode || len(n.Content) != 2*len(f.items) {
			return false
		}
		for i, e := range f.items {
			if n.Content[2*i].Value != e.key || n.Content[2*i+1].Value != e.text {
				return false
			}
		}
		return true
	}
	return n.Kind == yaml.ScalarNode && trim(n.Value) == trim(f.text)
}
