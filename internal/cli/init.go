package cli

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"charm.land/huh/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/draft"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

func newInit(t *terminal) *cobra.Command {
	var d draft.Draft
	var dialect, output string
	var force bool
	var dev development
	var f *pflag.FlagSet
	cmd := verb("init [NAME]", atMost(1, "one NAME, or none"), func(ctx context.Context, args []string) error {
		if len(args) == 1 {
			d.Name = args[0]
		}
		var err error
		if d.Dialect, err = parseDialect(dialect); err != nil {
			return err
		}
		d.LoopbackHTTP = dev.loopbackHTTP
		t.announce(egress.Switches{LoopbackHTTP: d.LoopbackHTTP})
		known, err := t.catalogue()
		if err != nil {
			return err
		}
		if d.Name == "" || d.Dialect == "" {
			if !t.canAsk() {
				return usage("run: ambit init NAME --dialect "+strings.Join(dialectNames(), "|"),
					"ambit init needs NAME and --dialect, because it cannot ask for them here")
			}
			if err := t.askDraft(ctx, &d, known); err != nil {
				return err
			}
		}
		if names := unsupportedFlags(f, d.Dialect); len(names) > 0 {
			return usage("leave out these flags, or choose another dialect",
				"%s agents do not support %s", d.Dialect, diag.Words(names, "and"))
		}
		return t.writeDraft(&d, known, output, force)
	})
	f = cmd.Flags()
	dev.manifestFlag(f)
	f.StringVar(&dialect, "dialect", "", "the `dialect`: "+strings.Join(dialectNames(), ", "))
	f.StringVar(&d.Description, "description", "", "one sentence about the agent's purpose (`text`)")
	f.StringSliceVar(&d.Servers, "server", nil,
		"a tool server from the catalogue: its `id` or the last part of the id (matrix, gpars)")
	f.StringSliceVar(&d.Allow, "allow", nil,
		"the side effects (matrix) or scopes (gpars) that the agent may have, as a `list` (default read)")
	f.StringVar(&d.Runtime, "runtime", "",
		"the `name` of the program's runtime: python3, node or binary (covenant; default python3)")
	f.StringVar(&d.Entry, "entry", "", "the program's `file` (covenant)")
	f.StringVar(&d.Network, "network", "",
		"the program's network access: off, outbound-https-only or full (covenant; default off) (`kind`)")
	f.StringSliceVar(&d.Requires, "requires", nil, "a `capability` that callers must hold (covenant)")
	f.StringVar(&d.Prompt, "prompt", "", "the agent's instructions (findagent) (`text`)")
	f.StringArrayVar(&d.Examples, "example", nil, "an example of a request to the agent (findagent) (`text`)")
	f.StringArrayVar(&d.HTTP, "http", nil,
		"a tool that makes an HTTP request: `NAME=METHOD URL`, with {placeholders} for arguments, and a body after the URL (findagent)")
	f.StringArrayVar(&d.Templates, "template", nil,
		"a tool that writes a prompt: `NAME=TEXT`, with {placeholders} for arguments (findagent)")
	f.StringSliceVar(&d.Credentials, "credential", nil,
		"a credential for the tools on one host: `REF=HOST` (findagent)")
	f.StringVarP(&output, "output", "o", "", "write to `file`; use - for standard output")
	f.BoolVar(&force, "force", false, "overwrite the file")
	complete(cmd, "dialect", dialectNames())
	return cmd
}

// dialectFlags lists the flags that only some dialects use.
var dialectFlags = map[agent.Dialect][]string{
	agent.Matrix:    {"description", "server", "allow"},
	agent.GPARS:     {"server", "allow"},
	agent.Covenant:  {"runtime", "entry", "network", "requires"},
	agent.FindAgent: {"description", "prompt", "example", "http", "template", "credential"},
}

// unsupportedFlags returns the flags on the command line that the dialect d does not support. "ambit init" rejects
// these flags, because they would have no effect.
func unsupportedFlags(flags *pflag.FlagSet, d agent.Dialect) (names []string) {
	all := slices.Concat(slices.Collect(maps.Values(dialectFlags))...)
	flags.Visit(func(f *pflag.Flag) {
		if slices.Contains(all, f.Name) && !slices.Contains(dialectFlags[d], f.Name) {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

func (t *terminal) writeDraft(d *draft.Draft, known *catalog.Catalog, output string, force bool) error {
	if !isName(d.Name) {
		return usage("use letters, digits, -, _ and .", "%s cannot be the name of an agent", diag.Quote(d.Name))
	}
	r, err := d.Make(known)
	if problems, ok := errors.AsType[*draft.Problems](err); ok {
		return t.badDraft(problems)
	}
	if err != nil {
		return no("", "%w", err)
	}
	doc := map[string]any{"name": d.Name, "dialect": d.Dialect}
	if output == "-" {
		doc["manifest"] = manifestValue(d.Dialect, r.Text)
		return t.say(doc, "%s", r.Text)
	}
	if output == "" {
		output = defaultPath(d.Dialect, d.Name)
	}
	if err := writeNew(output, r.Text, force); err != nil {
		return err
	}
	for _, f := range r.Files {
		file := filepath.Join(filepath.Dir(output), filepath.FromSlash(f.Name))
		if _, err := os.Lstat(file); err == nil {
			continue // keep the user's own program
		}
		if err := writeNew(file, []byte(f.Text), false); err != nil {
			return err
		}
	}
	next := nextAfterInit(d, r, output)
	doc["path"], doc["digest"], doc["next"] = output, r.Manifest.Digest(), next
	return t.show(doc, func() {
		t.printf("%s\n", output)
		for _, line := range next {
			t.remarkf("next: %s", line)
		}
	})
}

// badDraft reports all problems in the user's answers. Problems in the manifest have no location, because the manifest
// was not written to a file.
func (t *terminal) badDraft(p *draft.Problems) error {
	const hint = "nothing was written; for the possible answers, run: ambit init --help"
	if p.Manifest != nil {
		for _, d := range p.Manifest.Diagnostics {
			if t.json {
				break
			}
			t.notef("%s %s %s", t.paint(red, d.Severity.String()+":"), d.Message, t.paint(dim, "["+d.Code+"]"))
			if d.Hint != "" {
				t.hintf("%s", d.Hint)
			}
		}
		return no(hint, "the answers do not make a valid manifest: %w", p)
	}
	if len(p.Answers) == 1 || t.json {
		return usage(hint, "%w", p)
	}
	for _, a := range p.Answers {
		t.notef("%s %s", t.paint(red, "error:"), diag.Printable(a))
	}
	return usage(hint, "the answers have %s", count(len(p.Answers), "problem"))
}

// manifestValue returns a manifest as a value for a JSON document. A TOML manifest becomes a string.
func manifestValue(d agent.Dialect, text []byte) any {
	if d == agent.Covenant {
		return string(text)
	}
	return json.RawMessage(text)
}

// defaultPath returns the default path for a new agent's manifest.
func defaultPath(d agent.Dialect, name string) string {
	switch d {
	case agent.Covenant:
		return filepath.Join(name, "agent.toml")
	case agent.FindAgent:
		return filepath.Join(name, "findagent.json")
	default:
		return name + ".json"
	}
}

// nextAfterInit returns the commands that the user should run next.
func nextAfterInit(d *draft.Draft, r *draft.Result, path string) []string {
	word := diag.ShellWord(path)
	next := []string{"ambit inspect " + word}
	switch d.Dialect {
	case agent.Matrix:
		next = append(next, "ambit lock "+word)
	case agent.GPARS:
		for _, n := range r.Manifest.Agent().Requirements {
			next = append(next, grantCommand(d.Name, n.Server, n.Scopes))
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
		if d.LoopbackHTTP { // without the flag, these commands reject the addresses of this machine
			for i := range next {
				next[i] += " --dev"
			}
		}
	}
	return next
}

// dialectWords contains a short description of each dialect.
var dialectWords = map[agent.Dialect]string{
	agent.Matrix:    "tools on MCP servers, all pinned and listed in the manifest",
	agent.GPARS:     "servers named by their ids; your policy decides on every call",
	agent.Covenant:  "your own program, in a sandbox",
	agent.FindAgent: "a prompt whose tools are HTTP requests and templates",
}

// askDraft asks the user for every value that the flags do not set. It normally shows forms. It uses plain lines of
// text instead if the terminal cannot show forms, or if the environment variable ACCESSIBLE is set. Screen readers can
// read plain lines.
func (t *terminal) askDraft(ctx context.Context, d *draft.Draft, known *catalog.Catalog) error {
	plain := !t.interactive() || os.Getenv("TERM") == "dumb" || os.Getenv("ACCESSIBLE") != ""
	var first []huh.Field
	if d.Name == "" {
		input := huh.NewInput().Title("What is the agent called?").Description("letters, digits, -, _ and .").Value(&d.Name)
		first = append(first, input.Validate(func(s string) error {
			if !isName(s) {
				return errors.New("use letters, digits, dots, - and _")
			}
			return nil
		}))
	}
	if d.Dialect == "" {
		dialects := each(agent.Dialects, func(d agent.Dialect) huh.Option[agent.Dialect] {
			return huh.NewOption(string(d)+": "+dialectWords[d], d)
		})
		choice := huh.NewSelect[agent.Dialect]().Title("What kind of agent is it?")
		first = append(first, choice.Options(dialects...).Value(&d.Dialect))
	}
	if err := t.form(ctx, plain, first...); err != nil {
		return err
	}
	return t.form(ctx, plain, t.questions(d, known)...)
}

func (t *terminal) questions(d *draft.Draft, known *catalog.Catalog) []huh.Field {
	// check validates one answer. It makes a manifest from this answer and the chosen servers, and returns an error if
	// the manifest is invalid.
	check := func(set func(*draft.Draft)) error {
		probe := draft.Draft{
			Dialect: d.Dialect, Name: d.Name, Servers: d.Servers, Allow: d.Allow, LoopbackHTTP: d.LoopbackHTTP,
		}
		set(&probe)
		_, err := probe.Make(known)
		return err
	}
	about := huh.NewInput().Title("What is the agent for?").Description("a sentence for people who find the agent").
		Value(&d.Description).
		Validate(func(s string) error { return check(func(p *draft.Draft) { p.Description = s }) })
	list := func(title, description string, list *[]string, set func(p *draft.Draft, lines []string)) huh.Field {
		return huh.NewText().Title(title).Description(description).Lines(3).Accessor(&lineList{list}).
			Validate(func(s string) error { return check(func(p *draft.Draft) { set(p, split(s)) }) })
	}
	switch d.Dialect {
	case agent.Matrix:
		return []huh.Field{t.whichServers(d, known), whichEffects(d), about}
	case agent.GPARS:
		scopes := whichScopes(d, known)
		return []huh.Field{t.whichServers(d, known), scopes.Validate(func(chosen []string) error {
			return check(func(p *draft.Draft) { p.Allow = chosen })
		})}
	case agent.Covenant:
		language := huh.NewSelect[string]().Title("What is the program written in?").
			Options(huh.NewOptions("python3", "node", "binary")...)
		network := huh.NewSelect[string]().Title("May the program use the network?").Options(huh.NewOption("no", "off"),
			huh.NewOption("only HTTPS to other machines", "outbound-https-only"), huh.NewOption("without limits", "full"))
		return []huh.Field{language.Value(&d.Runtime), network.Value(&d.Network)}
	}
	prompt := huh.NewText().Title("Instructions for the agent").
		Description("what the agent does, what it must not do, and how it answers").Lines(5).Value(&d.Prompt).
		Validate(func(s string) error { return check(func(p *draft.Draft) { p.Prompt = s }) })
	return []huh.Field{
		about, prompt,
		list("HTTP requests that the agent may make",
			"NAME=METHOD URL, one per line, such as get_user=GET https://api.example.com/users/{id}",
			&d.HTTP, func(p *draft.Draft, lines []string) { p.HTTP = lines }),
		list("Credentials for these requests",
			"REF=HOST, one per line, such as token=api.example.com; ambit asks for the credential's value later",
			&d.Credentials, func(p *draft.Draft, lines []string) { p.HTTP, p.Credentials = d.HTTP, lines }),
		list("Prompts that the agent can write",
			"NAME=TEXT, one per line, such as summarize=Summarize this text in three sentences: {text}",
			&d.Templates, func(p *draft.Draft, lines []string) { p.Templates = lines }),
	}
}

func (t *terminal) whichServers(d *draft.Draft, known *catalog.Catalog) huh.Field {
	var all []huh.Option[string]
	for _, id := range known.IDs() {
		e := known.Entries[id]
		if d.Dialect == agent.Matrix && e.Package.Kind == catalog.Builtin {
			continue // Matrix agents need a package that can be pinned
		}
		text := id[strings.LastIndexByte(id, '/')+1:] + ": " + e.Description
		all = append(all, huh.NewOption(clip(diag.Printable(text), min(t.width, 100)-12), id))
	}
	servers := huh.NewMultiSelect[string]().Title("Which tool servers does the agent use?").Options(all...)
	return servers.Height(min(len(all)+2, 16)).Value(&d.Servers).Validate(func(chosen []string) error {
		if len(chosen) == 0 {
			return errors.New("choose at least one server with the x key or the space bar")
		}
		return nil
	})
}

func whichEffects(d *draft.Draft) huh.Field {
	if d.Allow == nil {
		d.Allow = []string{"read"}
	}
	return huh.NewMultiSelect[string]().Title("What may the agent's tools do?").Options(
		huh.NewOption("read: view data, change nothing", "read"), huh.NewOption("write: change things here", "write"),
		huh.NewOption("network: reach other machines", "network"), huh.NewOption("shell: run programs", "shell"),
	).Height(6).Value(&d.Allow)
}

func whichScopes(d *draft.Draft, known *catalog.Catalog) *huh.MultiSelect[string] {
	return huh.NewMultiSelect[string]().Title("Which scopes does the agent need?").
		Description("choosing a scope does not grant it; to grant the scopes, run: ambit grant").
		OptionsFunc(func() []huh.Option[string] {
			var names []string
			for _, s := range d.Servers {
				if _, e, err := draft.Find(known, s); err == nil {
					names = slices.AppendSeq(names, maps.Keys(e.Scopes))
				}
			}
			slices.Sort(names)
			return huh.NewOptions(slices.Compact(names)...)
		}, &d.Servers).Value(&d.Allow)
}

// lineList makes a list editable as text, with one element per line.
type lineList struct{ list *[]string }

func (l *lineList) Get() string  { return strings.Join(*l.list, "\n") }
func (l *lineList) Set(s string) { *l.list = split(s) }

func split(s string) []string {
	var all []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// form asks the user questions. It returns an error if the user cancels.
func (t *terminal) form(ctx context.Context, plain bool, fields ...huh.Field) error {
	if len(fields) == 0 {
		return nil
	}
	groups := each(fields, func(f huh.Field) *huh.Group { return huh.NewGroup(f) })
	theme := huh.ThemeFunc(huh.ThemeBase16)
	if !t.styled {
		theme = huh.ThemeFunc(huh.ThemeBase)
	}
	form := huh.NewForm(groups...).WithInput(t.in).WithOutput(t.err).WithAccessible(plain).WithTheme(theme).
		WithWidth(min(t.width, 100))
	run := func() ([]byte, error) { return nil, form.RunWithContext(ctx) }
	var err error
	if plain {
		_, err = t.await(ctx, run) // a form of plain text lines ignores ctx
		if t.interrupted {
			t.notef("") // end the line that contains the question
		}
	} else {
		_, err = run() // the form restores the terminal when ctx is cancelled
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, huh.ErrUserAborted):
		return &failure{code: exitInterrupted, err: errors.New("cancelled: nothing was written")}
	case err != nil:
		return no("", "the questions cannot be asked: %w", err)
	}
	return nil
}
