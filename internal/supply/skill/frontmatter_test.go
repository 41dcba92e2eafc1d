package skill

import (
	"fmt"
	"strings"
	"testing"
)

// shown returns a front matter and its problems as text, for comparison.
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
		{"string on several lines", "---\nd: one\n  two\n\n  three\nn: x\n---\n", "2 d=\"one two\\nthree\"\n6 n=\"x\"\nbody 8 \"\"\n"},
		{"quotes", "---\na: \"x: \\\"y\\\" \\u00e9\"\nb: 'it''s' # so\n---\n", "2 a=\"x: \\\"y\\\" é\"\n3 b=\"it's\"\nbody 5 \"\"\n"},
		{"blocks", "---\na: |\n  one\n    two\n\n  three\nb: >-\n  one\n  two\n\n  three\n---\n", "2 a=\"one\\n  two\\n\\nthree\"\n7 b=\"one two\\nthree\"\nbody 13 \"\"\n"},
		{"lists", "---\na: [x, \"y, z\"]\nb:\n  - one\n  - 'two'\nc:\n- three\nd: []\n---\n", "2 a 2:=\"x\" 2:=\"y, z\"\n3 b 4:=\"one\" 5:=\"two\"\n6 c 7:=\"three\"\n8 d\nbody 10 \"\"\n"},
		{"table", "---\nmetadata:\n  tags: git, writing\n  version: \"1.0\"\n---\n", "2 metadata 3:tags=\"git, writing\" 4:version=\"1.0\"\nbody 6 \"\"\n"},
		{"patterns", "---\ndescription:\nglobs: *.ts,src/**/*.{js,ts}\nalwaysApply: false\n---\n", "2 description=\"\"\n3 globs=\"*.ts,src/**/*.{js,ts}\"\n4 alwaysApply=\"false\"\nbody 6 \"\"\n"},
		{"colon", "---\nd: Use when: asked\n---\n", "2 d=\"Use when: asked\"\nbody 4 \"\"\nwarning 2 in YAML, a string with a colon needs quotes; without the quotes, some clients ignore the file"},
		{"no end", "---\nname: x\n", "body 3 \"\"\nproblem 1 the front matter has no closing line \"---\""},
		{"duplicate field", "---\nname: x\nname: y\n---\n", "2 name=\"x\"\n3 name=\"y\"\nbody 5 \"\"\nproblem 3 the field name appears twice"},
		{"two documents", "---\nname: x\n...\nname: y\n---\n", "body 6 \"\"\nproblem 1 the front matter contains a second YAML document"},
		{"no field", "---\njust text\n---\n", "body 4 \"\"\nproblem 2 the front matter has no fields"},
		{"text and a field", "---\njust text\nname: x\n---\n", "body 5 \"\"\nproblem 3 the front matter is not valid YAML: mapping values are not allowed in this context"},
		{"tab", "---\nname:\tx\n---\n", "2 name=\"x\"\nbody 4 \"\"\n"},
		{"tab as indentation", "---\na:\n\tb: x\n---\n", "body 5 \"\"\nproblem 3 the front matter is not valid YAML: found character that cannot start any token"},
		{"line separator", "---\nname: x\u2028evil: y\n---\n", "body 4 \"\"\nproblem 2 the line contains an invisible character that YAML and editors interpret differently"},
		{"anchor", "---\na: &x y\n---\n", "body 4 \"\"\nproblem 2 the front matter uses a YAML anchor (&), alias (*) or tag (!)"},
		{"alias", "---\na: &x y\nb: *x\n---\n", "body 5 \"\"\nproblem 2 the front matter uses a YAML anchor (&), alias (*) or tag (!)"},
		{"deep anchor", "---\nm:\n  - a: [&x y]\n---\n", "body 5 \"\"\nproblem 3 the front matter uses a YAML anchor (&), alias (*) or tag (!)"},
		{"tag", "---\na: !!binary aGk=\n---\n", "body 4 \"\"\nproblem 2 the front matter uses a YAML anchor (&), alias (*) or tag (!)"},
		{"object", "---\na: {b: c}\n---\n", "2 a 2:b=\"c\"\nbody 4 \"\"\n"},
		{"list in a table", "---\nmetadata:\n  tags: [git, writing]\n---\n", "2 metadata 3:tags=\"git,writing\"\nbody 5 \"\"\n"},
		{"deep", "---\nm:\n  a:\n    b: c\n---\n", "2 m 3:a=\"\"\nbody 6 \"\"\n"},
		{"list of tables", "---\na:\n  - b: c\n---\n", "2 a 3:=\"\"\nbody 5 \"\"\nwarning 3 an item of a is not a string"},
		{"text after a quoted string", "---\na: \"x\"\n  more\n---\n", "body 5 \"\"\nproblem 2 the front matter is not valid YAML: did not find expected key"},
		{"unclosed quote", "---\na: \"x\n---\n", "body 4 \"\"\nproblem 2 the front matter is not valid YAML: found unexpected end of stream"},
		{"unclosed list", "---\na: [x\n---\n", "body 4 \"\"\nproblem 2 the front matter is not valid YAML: did not find expected ',' or ']'"},
		{"block with indent", "---\na: |2\n  x\n---\n", "2 a=\"x\"\nbody 5 \"\"\n"},
		{"colon in a block", "---\na: |\n  b: c: d\n---\n", "2 a=\"b: c: d\"\nbody 5 \"\"\n"},
		{"colon on a continuation line", "---\nd: Use it's: asked\n  for: this\nn: x\n---\n", "body 6 \"\"\nwarning 2 in YAML, a string with a colon needs quotes; without the quotes, some clients ignore the file\nproblem 2 the front matter is not valid YAML: did not find expected key"},
		{"colon in a table", "---\nm:\n  a: b: c # d\n---\n", "2 m 3:a=\"b: c\"\nbody 5 \"\"\nwarning 3 in YAML, a string with a colon needs quotes; without the quotes, some clients ignore the file"},
		{"list of patterns", "---\nglobs: [*.ts, \"a,b\", 'c' , src/**]\n---\n", "2 globs 2:=\"*.ts\" 2:=\"a,b\" 2:=\"c\" 2:=\"src/**\"\nbody 4 \"\"\n"},
		{"too large", "---\na: " + strings.Repeat("x", maxMatter) + "\n---\n", "body 4 \"\"\nproblem 1 the front matter has more than 65536 bytes"},
		{"too deep", "---\na: " + strings.Repeat("[", 20_000) + "\n---\n", "body 4 \"\"\nproblem 2 the front matter is not valid YAML: exceeded max depth of 10000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := shown(tt.text); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// FuzzFrontmatter checks that the body is the end of the file. It also checks that the line of each
// problem is a line of the file.
func FuzzFrontmatter(f *testing.F) {
	for _, seed := range []string{
		"---\nname: x\ndescription: a b # c\nmetadata:\n  tags: git, writing\n---\nbody", "---\na: |\n  one\n    two\n\n  three\nb: >-\n  one\n  two\n\n  three\n---\n",
		"---\na: [x, \"y, z\"]\nb:\n  - one\nc:\n- 'three'\n---\n", "---\nd: one\n  two\n\n  three\n---\n", "---\na: \"\\u00e9\\n\"\nb: 'it''s' # so\n---\n", "---\n---\n", "---\na: >\n\n x\n  y\n\n z\n---\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, all string) {
		lines := 1 + strings.Count(all, "\n")
		got := readFrontmatter(all, func(line int, _ bool, _, message string) {
			if line < 1 || line > lines {
				t.Errorf("a problem is in line %d of a file with %d lines: %s", line, lines, message)
			}
		})
		if !strings.HasSuffix(strings.ReplaceAll(all, "\r\n", "\n"), strings.ReplaceAll(got.body, "\r\n", "\n")) {
			t.Errorf("the body %q is not the end of the file", got.body)
		}
		if got.broken && got.fields != nil {
			t.Errorf("invalid front matter yields the fields %+v, want none", got.fields)
		}
	})
}
