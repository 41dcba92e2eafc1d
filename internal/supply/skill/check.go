package skill

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// The rules of skills.
var (
	ruleContent = diag.NewError(
		"SK001", "a skill that violates its format",
		"Clients find a skill by its front matter, and ambit enforces its §TOOLS section. A skill that can be read in two ways is not served.",
		"write the file as its format requires",
	)
	ruleDoubtful = diag.NewWarning(
		"SK002", "a skill that may be misread",
		"It is served, but some clients read it differently, or a reviewer does not see all of it.",
		"rewrite it so that there is one reading",
	)
	ruleFile = diag.NewError(
		"SK003", "a file that is not read",
		"A bundle consists of its own files. Links out of it, devices and very large files are refused.",
		"remove it from the bundle",
	)
	ruleListed = diag.NewError(
		"SK004", "the manifest and the skills disagree",
		"People approve the skills that the manifest lists. A skill that it does not list was not reviewed, and a missing skill cannot be served.",
		"make the manifest's list and the files agree",
	)
)

var Rules = []*diag.Rule{ruleContent, ruleDoubtful, ruleFile, ruleListed}

// Check reads the bundle that a manifest declares and returns every problem, file by
// file, in the order of their names. The error means that the bundle could not be read.
func Check(ctx context.Context, files Files, declared *agent.Skills, tools []string, strict bool) ([]*diag.Reporter, error) {
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

// lineOf is the place of a line, counted from 1; 0 is the beginning.
func lineOf(text string, line int) diag.Place {
	start := 0
	for range line - 1 {
		next := strings.IndexByte(text[start:], '\n')
		if next < 0 {
			break
		}
		start += next + 1
	}
	end := len(text)
	if next := strings.IndexByte(text[start:], '\n'); next >= 0 {
		end = start + next
	}
	return diag.Place{Start: start, End: start + len(strings.TrimRight(text[start:end], " \t\r"))}
}
