package skill

import (
	"context"
	_ "embed"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

//go:embed rules.txt
var rulesText string

// Rules lists the diagnostic rules for skills.
var Rules = diag.ParseRules(rulesText)

var (
	ruleContent  = Rules.Get("SK001")
	ruleDoubtful = Rules.Get("SK002")
	ruleFile     = Rules.Get("SK003")
	ruleListed   = Rules.Get("SK004")
	ruleUnlisted = Rules.Get("SK005")
)

// Check reads the bundle that a manifest declares. It returns one Reporter for each file with problems, in the order
// of the file names. It fails if the bundle cannot be read.
func Check(
	ctx context.Context, files Files, declared *agent.Skills, tools []string, strict bool,
) ([]*diag.Reporter, error) {
	_, problems, err := inspect(ctx, files, declared, tools)
	if err != nil {
		return nil, err
	}
	var found []*diag.Reporter
	last := ""
	for i, p := range problems {
		if i == 0 || p.File != last {
			text := ""
			if p.File != "" && p.rule != ruleFile {
				raw, err := files.Read(ctx, p.File)
				if err != nil {
					return nil, err
				}
				text = strings.ToValidUTF8(string(raw), "\uFFFD")
			}
			found = append(found, diag.Open(filepath.Join(files.Name(), filepath.FromSlash(p.File)), text, strict))
			last = p.File
		}
		r := found[len(found)-1]
		r.Report(p.rule, lineOf(r.Source.Text, p.Line), p.Hint, "%s", p.Message)
	}
	return found, nil
}

// lineOf returns the place of a line in a text. Line numbers start at 1. If line is 0, lineOf returns the place of the
// first line.
func lineOf(text string, line int) diag.Place {
	lines := strings.SplitAfter(text, "\n")
	at := min(max(line, 1), len(lines)) - 1
	start := len(strings.Join(lines[:at], ""))
	return diag.Place{Start: start, End: start + len(strings.TrimRight(lines[at], " \t\r\n"))}
}
