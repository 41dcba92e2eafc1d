package cli

import (
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

// The parts of SARIF 2.1.0 that code scanners read.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		FullDescription  sarifText `json:"fullDescription"`
		Help             sarifText `json:"help"`
		Default          struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region sarifRegion `json:"region"`
		} `json:"physicalLocation"`
		Logical []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndLine     int `json:"endLine"`
		EndColumn   int `json:"endColumn"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
	}
)

func (t *terminal) reportSARIF(c *checked) error {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "ambit", Version: version, Rules: []sarifRule{}}
	index := map[string]int{}
	for _, r := range slices.Concat(manifest.Rules(), skill.Rules) {
		index[r.Code] = len(run.Tool.Driver.Rules)
		rule := sarifRule{ID: r.Code, ShortDescription: sarifText{r.Title}, FullDescription: sarifText{r.Why}, Help: sarifText{r.Fix}}
		if rule.Help.Text == "" {
			rule.Help.Text = "ambit explain " + r.Code
		}
		rule.Default.Level = r.Severity.String()
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	for _, m := range c.files {
		for _, d := range m.Diagnostics {
			res := sarifResult{RuleID: d.Code, RuleIndex: index[d.Code], Level: d.Severity.String(), Message: sarifText{d.Message}}
			if d.Hint != "" {
				res.Message.Text += " (hint: " + d.Hint + ")"
			}
			var l sarifLocation
			l.Physical.Artifact.URI = fileURI(m.Path)
			l.Physical.Region = sarifRegion{d.Line, d.Column, d.EndLine, d.EndColumn}
			if d.Pointer != "" {
				l.Logical = []sarifLogical{{d.Pointer}}
			}
			res.Locations = []sarifLocation{l}
			run.Results = append(run.Results, res)
		}
	}
	return t.document(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
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
