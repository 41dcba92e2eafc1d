package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/draft"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

func newInit(t *terminal) *cobra.Command {
	var d draft.Draft
	var dialect, output string
	var force bool
	cmd := &cobra.Command{
		Use:     "init [NAME]",
		GroupID: groupWrite,
		Short:   "Build an agent from a few answers",
		Long: "Build an agent from a few answers. On a terminal they are asked for, and each is checked while you type; elsewhere, or\n" +
			"with a NAME and --dialect, they are flags. Tool servers are those of the catalogue (ambit catalog list), with\n" +
			"their packages pinned and every tool listed. Nothing is written that is not a valid manifest.\n\n" +
			"Other ways to start: ambit new forks an agent that ships, ambit import takes what you have.",
		Example: "  ambit init\n" +
			"  ambit init scribe --dialect matrix --server filesystem,memory --allow read,write\n" +
			"  ambit init reader --dialect gpars --server filesystem --allow read\n" +
			"  ambit init greeter --dialect covenant --runtime python3\n" +
			"  ambit init users --dialect findagent --http 'get_user=GET https://api.example.com/users/{id}' --credential token=api.example.com",
		Args: atMost(1, "one NAME, or none"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				d.Name = args[0]
			}
			var err error
			if d.Dialect, err = parseDialect(dialect); err != nil {
				return err
			}
			h := t.home
			known, err := catalog.Open(h)
			if err != nil {
				return no("fix the file: "+catalog.File(h), "%w", err)
			}
			if d.Name == "" || d.Dialect == "" {
				if !t.canAsk() {
					return usage("give them: ambit init NAME --dialect "+strings.Join(dialectNames(), "|"), "init needs a NAME and a --dialect where it cannot ask")
				}
				if err := t.askDraft(cmd.Context(), &d, known); err != nil {
					return err
				}
			}
			return t.writeDraft(&d, known, output, force)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dialect, "dialect", "", "the `dialect`: "+strings.Join(dialectNames(), ", "))
	f.StringVar(&d.Description, "description", "", "what it is for, in a sentence (`text`)")
	f.StringSliceVar(&d.Servers, "server", nil, "a tool server of the catalogue, by its `id` or the last part of it (matrix, gpars)")
	f.StringSliceVar(&d.Allow, "allow", nil, "the side effects (matrix) or scopes (gpars) that it may have, as a `list` (default read)")
	f.StringVar(&d.Runtime, "runtime", "", "what runs the program: python3, node or binary (covenant; default python3) (`name`)")
	f.StringVar(&d.Entry, "entry", "", "the program's `file` (covenant)")
	f.StringVar(&d.Network, "network", "", "its network: off, outbound-https-only or full (covenant; default off) (`kind`)")
	f.StringSliceVar(&d.Requires, "requires", nil, "a `capability` that its callers must hold (covenant)")
	f.StringVar(&d.Prompt, "prompt", "", "its instructions (findagent) (`text`)")
	f.StringArrayVar(&d.Examples, "example", nil, "an example of what to ask it (findagent) (`text`)")
	f.StringArrayVar(&d.HTTP, "http", nil, "a tool that makes a request: `NAME=METHOD URL`, with {holes} for its arguments (findagent)")
	f.StringArrayVar(&d.Templates, "template", nil, "a tool that writes a prompt: `NAME=TEXT`, with {holes} for its arguments (findagent)")
	f.StringSliceVar(&d.Credentials, "credential", nil, "a credential for the tools on one host: `REF=HOST` (findagent)")
	f.StringVarP(&output, "output", "o", "", "write to `file`; - prints to standard output")
	f.BoolVar(&force, "force", false, "overwrite the file")
	complete(cmd, "dialect", dialectNames())
	return cmd
}

// foreign returns the flags that a dialect does not use. They are refused, because a person
// would expect an effect.
func foreign(d *draft.Draft) []string {
	var names []string
	say := func(name string, given bool, dialects ...agent.Dialect) {
		if given && !slices.Contains(dialects, d.Dialect) {
			names = append(names, "--"+name)
		}
	}
	say("description", d.Description != "", agent.Matrix, agent.FindAgent)
	say("server", len(d.Servers) > 0, agent.Matrix, agent.GPARS)
	say("allow", len(d.Allow) > 0, agent.Matrix, agent.GPARS)
	say("runtime", d.Runtime != "", agent.Covenant)
	say("entry", d.Entry != "", agent.Covenant)
	say("network", d.Network != "", agent.Covenant)
	say("requires", len(d.Requires) > 0, agent.Covenant)
	say("prompt", d.Prompt != "", agent.FindAgent)
	say("example", len(d.Examples) > 0, agent.FindAgent)
	say("http", len(d.HTTP) > 0, agent.FindAgent)
	say("template", len(d.Templates) > 0, agent.FindAgent)
	say("credential", len(d.Credentials) > 0, agent.FindAgent)
	return names
}

func (t *terminal) writeDraft(d *draft.Draft, known *catalog.Catalog, output string, force bool) error {
	if !isName(d.Name) {
		return usage("use letters, digits, -, _ and .", "%s cannot be the name of an agent", diag.Quote(d.Name))
	}
	if names := foreign(d); len(names) > 0 {
		return usage("leave them out, or choose another dialect", "%s agents have no %s", d.Dialect, diag.Words(names, "and"))
	}
	r, err := d.Make(known)
	if problems, ok := errors.AsType[*draft.Problems](err); ok {
		return t.badDraft(problems)
	}
	if err != nil {
		return no("", "%w", err)
	}
	if output == "-" {
		return t.say(map[string]any{"name": d.Name, "dialect": d.Dialect, "manifest": manifestValue(d.Dialect, r.Text)}, "%s", r.Text)
	}
	if output == "" {
		output = placeOf(d.Dialect, d.Name)
	}
	if err := writeNew(output, r.Text, force); err != nil {
		return err
	}
	for _, f := range r.Files {
		file := filepath.Join(filepath.Dir(output), filepath.FromSlash(f.Name))
		if _, err := os.Lstat(file); err == nil {
			continue // a program that is there is the person's own
		}
		if err := writeNew(file, []byte(f.Text), false); err != nil {
			return err
		}
	}
	next := nextAfterInit(d, r, output)
	return t.show(map[string]any{"name": d.Name, "dialect": d.Dialect, "path": output, "digest": r.Manifest.Digest(), "next": next}, func() {
		t.printf("%s\n", output)
		for _, line := range next {
			t.notef("%s", t.paint(dim, "next: "+line))
		}
	})
}

// badDraft reports every problem of the answers.
func (t *terminal) badDraft(p *draft.Problems) error {
	if p.Manifest != nil {
		if !t.json {
			t.badAnswers(p.Manifest)
		}
		return no(noDraft, "that would not be a valid manifest: %w", p)
	}
	if len(p.Answers) == 1 || t.json {
		return usage(noDraft, "%w", p)
	}
	for _, a := range p.Answers {
		t.notef("%s %s", t.paint(red, "error:"), diag.Printable(a))
	}
	return usage(noDraft, "%s with the answers", count(len(p.Answers), "problem"))
}

const noDraft = "nothing was written; what can be said: ambit init --help"

// badAnswers prints the problems of a manifest that is not in a file, without locations.
func (t *terminal) badAnswers(m *manifest.Manifest) {
	for _, d := range m.Diagnostics {
		t.notef("%s %s %s", t.paint(red, d.Severity.String()+":"), d.Message, t.paint(dim, "["+d.Code+"]"))
		if d.Hint != "" {
			t.hintf("%s", d.Hint)
		}
	}
}

// manifestValue returns a manifest for a JSON document: JSON as it is, TOML as a string.
func manifestValue(d agent.Dialect, text []byte) any {
	if d == agent.Covenant {
		return string(text)
	}
	return json.RawMessage(text)
}

// placeOf returns the default path of an agent's manifest.
func placeOf(d agent.Dialect, name string) string {
	switch d {
	case agent.Covenant:
		return filepath.Join(name, "agent.toml")
	case agent.FindAgent:
		return filepath.Join(name, "findagent.json")
	default:
		return name + ".json"
	}
}

// nextAfterInit are the commands that bring the agent to its first call.
func nextAfterInit(d *draft.Draft, r *draft.Result, path string) []string {
	word := diag.ShellWord(path)
	next := []string{"ambit inspect " + word}
	switch d.Dialect {
	case agent.Matrix:
		next = append(next, "ambit lock "+word)
	case agent.GPARS:
		for _, n := range r.Manifest.Agent().Requirements {
			next = append(next, "ambit grant "+diag.ShellWord(d.Name)+" --server "+diag.ShellWord(n.Server)+" --scope "+diag.ShellWord(strings.Join(n.Scopes, ",")))
		}
	case agent.Covenant:
		next = append(next, "ambit call "+word+" "+diag.ShellWord(d.Name)+" --input '{\"text\": \"hello\"}'")
	case agent.FindAgent:
		for _, s := range r.Manifest.Agent().Slots {
			next = append(next, "ambit secret set "+word+" "+diag.ShellWord(s.Ref))
		}
		if len(r.Manifest.Agent().Tools) > 0 {
			next = append(next, "ambit tools "+word)
		}
	}
	return next
}
