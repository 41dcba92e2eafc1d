package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

// shownProblems bounds how many problems of one file are shown to a person.
// --json, SARIF and GitHub get them all.
const shownProblems = 100

// problems shows the diagnostics of a manifest, each in its place:
//
//	path:4:16: error: what is wrong [MX010]
//	    4 |       "alias": "FS",
//	      |                ^^^^
//	      = hint: what to do
func (t *terminal) problems(w io.Writer, m *manifest.Manifest) {
	path := diag.Printable(m.Path)
	if strings.HasPrefix(strings.TrimSpace(path), "::") {
		path = "./" + path // a CI runner takes a line that starts so for a command
	}
	for i, d := range m.Diagnostics {
		if i == shownProblems {
			fmt.Fprintf(w, "%s: %s more are not shown here; --json shows all\n", path, count(len(m.Diagnostics)-i, "problem"))
			return
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		colour := red
		if d.Severity == diag.Warning {
			colour = yellow
		}
		fmt.Fprintf(w, "%s %s %s %s\n",
			t.paint(bold, fmt.Sprintf("%s:%d:%d:", path, d.Line, d.Column)),
			t.paint(colour, d.Severity.String()+":"), d.Message, t.paint(dim, "["+d.Code+"]"))
		if m.Source.Text != "" {
			f := m.Source.Frame(d)
			gutter := fmt.Sprintf("%5d | ", f.Line)
			blank := strings.Repeat(" ", len(gutter)-2)
			fmt.Fprintf(w, "%s%s\n", t.paint(dim, gutter), f.Text)
			fmt.Fprintf(w, "%s%s%s\n", t.paint(dim, blank+"| "), strings.Repeat(" ", f.Before), t.paint(colour, strings.Repeat("^", f.Marked)))
		}
		if d.Hint != "" {
			fmt.Fprintf(w, "      %s %s\n", t.paint(dim, "= hint:"), d.Hint)
		}
	}
}

// reportGitHub prints workflow commands, which GitHub shows on the lines they
// name.
func (t *terminal) reportGitHub(c *checked) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, m := range c.files {
		for _, d := range m.Diagnostics {
			message := d.Message
			if d.Hint != "" {
				message += "\nhint: " + d.Hint
			}
			t.printf("::%s file=%s,line=%d,col=%d,endLine=%d,endColumn=%d,title=%s::%s\n",
				d.Severity, diag.Printable(property.Replace(m.Path)), d.Line, d.Column, d.EndLine, d.EndColumn, d.Code, data.Replace(message))
		}
	}
	return nil
}

// reportSARIF prints the parts of SARIF 2.1.0 that code scanners read.
func (t *terminal) reportSARIF(c *checked) error {
	type object = map[string]any
	text := func(s string) object { return object{"text": s} }
	rules, results, index := []object{}, []object{}, map[string]int{}
	for _, r := range slices.Concat(manifest.Rules(), skill.Rules) {
		index[r.Code] = len(rules)
		rules = append(rules, object{
			"id": r.Code, "shortDescription": text(r.Title), "fullDescription": text(r.Why),
			"help": text(cmp.Or(r.Fix, "ambit explain "+r.Code)), "defaultConfiguration": object{"level": r.Severity.String()},
		})
	}
	for _, m := range c.files {
		for _, d := range m.Diagnostics {
			message := d.Message
			if d.Hint != "" {
				message += " (hint: " + d.Hint + ")"
			}
			region := object{"startLine": d.Line, "startColumn": d.Column, "endLine": d.EndLine, "endColumn": d.EndColumn}
			place := object{"physicalLocation": object{"artifactLocation": object{"uri": fileURI(m.Path)}, "region": region}}
			if d.Pointer != "" {
				place["logicalLocations"] = []object{{"fullyQualifiedName": d.Pointer}}
			}
			results = append(results, object{
				"ruleId": d.Code, "ruleIndex": index[d.Code], "level": d.Severity.String(), "message": text(message), "locations": []object{place},
			})
		}
	}
	driver := object{"name": "ambit", "version": version, "rules": rules}
	run := object{"tool": object{"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
	return t.document(object{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": []object{run}})
}

// fileURI is a path as a relative reference: slashes, and what a URI may not
// hold escaped.
func fileURI(path string) string {
	path = strings.ReplaceAll(path, `\`, "/")
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/._-~", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(c)+0x100, 16)[1:]))
		}
	}
	return b.String()
}
