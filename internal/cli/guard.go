package cli

import (
	"bytes"
	"context"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

func newGuard(t *terminal) *cobra.Command {
	return group(&cobra.Command{Use: "guard"}, newGuardTest(t))
}

const (
	maxTried  = 4 << 20 // the maximum size of a text to test
	maxTrials = 1000    // the maximum number of findings to show
)

var guardSides = []string{"argument", "result"}

// trial is a finding of "ambit guard test".
type trial struct {
	Guard  string       `json:"guard"`
	Rule   string       `json:"rule"`
	Line   int          `json:"line"`
	Column int          `json:"column"`
	Action guard.Action `json:"action"`
	Why    string       `json:"why"`
	// Start contains the first characters of the found text: at most four, and at most a quarter of the text. It is set
	// only for secrets and personal data.
	Start  string `json:"start,omitempty"`
	Length int    `json:"length"`
}

func newGuardTest(t *terminal) *cobra.Command {
	var of, as string
	run := func(ctx context.Context, args []string) error {
		if as != guardSides[0] && as != guardSides[1] {
			return usage("use argument or result", "--as %s is not known", diag.Quote(as))
		}
		if of == "-" && args[0] == "-" {
			return usage("give the text or the manifest as a file",
				"the text and the manifest cannot both come from standard input")
		}
		rails, err := t.guardrailsOf(of)
		if err != nil {
			return err
		}
		text, err := t.textToTry(ctx, args[0])
		if err != nil {
			return err
		}
		found, err := guard.Try(ctx, rails, text, as == "result")
		if err != nil {
			return no("", "the text could not be tested: %w", err)
		}
		ok, omitted := true, max(0, len(found)-maxTrials)
		for _, f := range found {
			ok = ok && f.Action == guard.Pass
		}
		trials := locate(text, found[:len(found)-omitted])
		return t.judge(ok, map[string]any{"ok": ok, "as": as, "findings": trials, "omitted": omitted}, func() {
			t.trials(args[0], as, trials, omitted)
		})
	}
	cmd := verb("test FILE|-", exactly(1, "one file, or - for standard input"), run)
	cmd.Flags().StringVar(&of, "agent", "",
		"use the guardrails of this agent, given by name or manifest (`AGENT`); default: the guardrails of every agent")
	cmd.Flags().StringVar(&as, "as", "result", "test the text as an argument or as a result (`SIDE`)")
	complete(cmd, "as", guardSides)
	return cmd
}

// guardrailsOf returns the guardrails of an agent. If no agent is named, it returns the operator's guardrails.
func (t *terminal) guardrailsOf(named string) (guard.Rails, error) {
	operator, err := operatorGuardrails(t.home)
	if err != nil || named == "" {
		return guard.Merge(operator, agent.Guardrails{}), err
	}
	m, err := t.load(named, "")
	if err != nil {
		return guard.Rails{}, err
	}
	return guard.Merge(operator, m.Agent().Guardrails), nil
}

func (t *terminal) textToTry(ctx context.Context, path string) (text []byte, err error) {
	if path != "-" {
		text, err = fileInput(ctx, path, maxTried)
	} else if text, err = t.standardInput(ctx, maxTried); err != nil {
		err = usage("", "cannot read the text: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if len(text) > maxTried {
		return nil, usage("test a part of it", "%s has more than %d MiB", diag.Quote(path), maxTried>>20)
	}
	return text, nil
}

// locate converts findings, which are sorted by their start, to trials with lines and columns.
func locate(text []byte, found []guard.Trial) []trial {
	line, lineStart, at := 1, 0, 0
	return each(found, func(f guard.Trial) trial {
		line += bytes.Count(text[at:f.Start], []byte("\n"))
		if n := bytes.LastIndexByte(text[at:f.Start], '\n'); n >= 0 {
			lineStart = at + n + 1
		}
		at = f.Start
		part := text[f.Start:f.End]
		out := trial{
			Guard: string(f.Kind), Rule: f.Rule, Line: line, Column: utf8.RuneCount(text[lineStart:at]) + 1,
			Action: f.Action, Why: f.Why, Length: utf8.RuneCount(part),
		}
		if f.Kind == guard.Secret || f.Kind == guard.PII {
			shown := []rune(string(part))
			out.Start = string(shown[:min(4, len(shown)/4)])
		}
		return out
	})
}

func (t *terminal) trials(path, as string, trials []trial, omitted int) {
	styles := map[guard.Action]style{
		guard.Pass: dim, guard.Mark: yellow, guard.Masked: yellow, guard.Withhold: red, guard.Refuse: red,
	}
	for _, f := range trials {
		what := f.Guard + " " + f.Rule
		if f.Start != "" {
			what += " (" + diag.Quote(f.Start+"…") + ", " + count(f.Length, "character") + ")"
		}
		action := t.paint(styles[f.Action], string(f.Action)+":")
		t.printf("%s:%d:%d: %s %s: %s\n", diag.Printable(path), f.Line, f.Column, action, diag.Printable(what), f.Why)
	}
	acts := 0
	for _, f := range trials {
		if f.Action != guard.Pass {
			acts++
		}
	}
	switch {
	case len(trials) == 0:
		t.printf("%s no guardrail finds anything in this %s\n", t.paint(green, "ok:"), as)
	case acts == 0:
		t.printf("%s the %s passes unchanged\n", t.paint(green, "ok:"), as)
	default:
		t.printf("%s\n", t.paint(boldRed, "the "+as+" does not pass unchanged"))
	}
	if omitted > 0 {
		t.notef("%s not shown", count(omitted, "more finding"))
	}
}
