package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"charm.land/huh/v2"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/draft"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// dialectWords say in a line what each dialect is for.
var dialectWords = map[agent.Dialect]string{
	agent.Matrix:    "tools on MCP servers, each pinned and listed",
	agent.GPARS:     "servers by their ids; your policy decides on every call",
	agent.Covenant:  "a program of yours, in a sandbox",
	agent.FindAgent: "a prompt with http requests and templates as tools",
}

// askDraft asks a person. On a terminal that cannot draw, and for screen
// readers (ACCESSIBLE), the questions are plain lines.
func (t *terminal) askDraft(ctx context.Context, d *draft.Draft, known *catalog.Catalog) error {
	plain := !t.interactive() || os.Getenv("TERM") == "dumb" || os.Getenv("ACCESSIBLE") != ""
	var dialects []huh.Option[agent.Dialect]
	for _, name := range dialectNames() {
		one := agent.Dialect(name)
		dialects = append(dialects, huh.NewOption(name+": "+dialectWords[one], one))
	}
	var first []huh.Field
	if d.Name == "" {
		first = append(first, huh.NewInput().Title("What is it called?").Description("letters, digits, -, _ and .").Value(&d.Name).Validate(func(s string) error {
			if !isName(s) {
				return errors.New("use letters, digits, dots, - and _")
			}
			return nil
		}))
	}
	if d.Dialect == "" {
		first = append(first, huh.NewSelect[agent.Dialect]().Title("What kind of agent is it?").Options(dialects...).Value(&d.Dialect))
	}
	if err := t.form(ctx, plain, first...); err != nil {
		return err
	}
	return t.form(ctx, plain, t.questions(d, known)...)
}

// questions are those of a dialect.
func (t *terminal) questions(d *draft.Draft, known *catalog.Catalog) []huh.Field {
	// An answer is checked as a whole manifest that has only this one in it.
	check := func(set func(*draft.Draft)) error {
		probe := draft.Draft{Dialect: d.Dialect, Name: d.Name, Servers: d.Servers}
		if d.Dialect == agent.GPARS || d.Dialect == agent.Matrix {
			probe.Allow = d.Allow
		}
		set(&probe)
		_, err := probe.Make(known)
		return err
	}
	about := huh.NewInput().Title("What is it for?").Description("a sentence for people who find it").Value(&d.Description).
		Validate(func(s string) error {
			return check(func(p *draft.Draft) { p.Description = s; p.Servers = someServer(p, known) })
		})
	switch d.Dialect {
	case agent.Matrix:
		return []huh.Field{about, t.whichServers(d, known, true), t.whichEffects(d)}
	case agent.GPARS:
		return []huh.Field{t.whichServers(d, known, false), t.whichScopes(d, known)}
	case agent.Covenant:
		return []huh.Field{
			huh.NewSelect[string]().Title("What is it written in?").Options(huh.NewOptions("python3", "node", "binary")...).Value(&d.Runtime),
			huh.NewSelect[string]().Title("May it use the network?").Options(
				huh.NewOption("no", "off"), huh.NewOption("https to the outside only", "outbound-https-only"), huh.NewOption("all of it", "full"),
			).Value(&d.Network),
		}
	default:
		return []huh.Field{
			about,
			huh.NewText().Title("Its instructions").Description("what it does, what it must not do, how it answers").Lines(5).Value(&d.Prompt).
				Validate(func(s string) error { return check(func(p *draft.Draft) { p.Prompt = s }) }),
			listField("Requests that it may make", "NAME=METHOD URL, one to a line: get_user=GET https://api.example.com/users/{id}", &d.HTTP,
				func(lines []string) error { return check(func(p *draft.Draft) { p.HTTP = lines }) }),
			listField("Credentials for them", "REF=HOST, one to a line: token=api.example.com; the value is asked for later", &d.Credentials,
				func(lines []string) error {
					return check(func(p *draft.Draft) { p.HTTP, p.Credentials = d.HTTP, lines })
				}),
			listField("Prompts that it can write", "NAME=TEXT, one to a line: summarize=Summarize in three sentences: {text}", &d.Templates,
				func(lines []string) error { return check(func(p *draft.Draft) { p.Templates = lines }) }),
		}
	}
}

// someServer keeps a probe about something else from being refused for having no
// server yet.
func someServer(p *draft.Draft, known *catalog.Catalog) []string {
	if p.Dialect != agent.Matrix || len(p.Servers) > 0 {
		return p.Servers
	}
	for _, id := range known.IDs() {
		if known.Entries[id].Package.Kind != catalog.Builtin {
			return []string{id}
		}
	}
	return nil
}

func (t *terminal) whichServers(d *draft.Draft, known *catalog.Catalog, pinned bool) huh.Field {
	var all []huh.Option[string]
	for _, id := range known.IDs() {
		e := known.Entries[id]
		if pinned && e.Package.Kind == catalog.Builtin {
			continue // it is no package
		}
		name := id[strings.LastIndexByte(id, '/')+1:]
		all = append(all, huh.NewOption(clip(diag.Printable(name+": "+e.Description), min(t.width, 100)-12), id))
	}
	return huh.NewMultiSelect[string]().Title("Which tool servers does it use?").Options(all...).Height(min(len(all)+2, 16)).Value(&d.Servers).Validate(func(chosen []string) error {
		if len(chosen) == 0 {
			return errors.New("choose at least one, with x or the space bar")
		}
		return nil
	})
}

func (t *terminal) whichEffects(d *draft.Draft) huh.Field {
	if d.Allow == nil {
		d.Allow = []string{"read"}
	}
	return huh.NewMultiSelect[string]().Title("What may its tools do?").Options(
		huh.NewOption("read: look, and change nothing", "read"), huh.NewOption("write: change things here", "write"),
		huh.NewOption("network: reach other machines", "network"), huh.NewOption("shell: run programs", "shell"),
	).Height(6).Value(&d.Allow)
}

func (t *terminal) whichScopes(d *draft.Draft, known *catalog.Catalog) huh.Field {
	return huh.NewMultiSelect[string]().Title("Which scopes does it need?").Description("none are granted by this: you do that with ambit grant").
		OptionsFunc(func() []huh.Option[string] {
			var names []string
			for _, s := range d.Servers {
				if _, e, err := draft.Find(known, s); err == nil {
					for scope := range e.Scopes {
						names = append(names, scope)
					}
				}
			}
			slices.Sort(names)
			return huh.NewOptions(slices.Compact(names)...)
		}, &d.Servers).Value(&d.Allow).Validate(func(chosen []string) error {
		probe := *d
		probe.Allow = chosen
		_, err := probe.Make(known)
		return err
	})
}

// listField is a text whose lines are a list.
func listField(title, description string, list *[]string, check func([]string) error) huh.Field {
	return huh.NewText().Title(title).Description(description).Lines(3).Accessor(&lines{list}).Validate(func(s string) error { return check(split(s)) })
}

// lines shows a list as a text.
type lines struct{ list *[]string }

func (l *lines) Get() string  { return strings.Join(*l.list, "\n") }
func (l *lines) Set(s string) { *l.list = split(s) }

func split(s string) []string {
	var all []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// form asks some questions; a person who leaves it has written nothing.
func (t *terminal) form(ctx context.Context, plain bool, fields ...huh.Field) error {
	if len(fields) == 0 {
		return nil
	}
	var groups []*huh.Group
	for _, f := range fields {
		groups = append(groups, huh.NewGroup(f))
	}
	theme := huh.ThemeFunc(huh.ThemeBase16)
	if !t.styled {
		theme = huh.ThemeFunc(huh.ThemeBase)
	}
	form := huh.NewForm(groups...).WithInput(t.in).WithOutput(t.err).WithAccessible(plain).WithTheme(theme).WithWidth(min(t.width, 100))
	run := func() ([]byte, error) { return nil, form.RunWithContext(ctx) }
	var err error
	if plain {
		_, err = t.await(ctx, run) // such a form knows nothing of ctx
		if t.interrupted {
			t.notef("") // the question is left on its line
		}
	} else {
		_, err = run() // and this one gives the terminal back
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, huh.ErrUserAborted):
		return &failure{code: exitInterrupted, err: errors.New("nothing was written")}
	case err != nil:
		return no("", "the questions cannot be asked: %w", err)
	}
	return nil
}
