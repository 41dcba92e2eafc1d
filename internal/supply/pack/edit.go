package pack

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Pin is the version and digest that a server in a manifest is pinned to. An empty
// field leaves the manifest's value as it is.
type Pin struct {
	Alias   string
	Version string
	Digest  string
}

// SetDigests writes pins into a Matrix manifest: package_digest, version, and the
// version in the arguments if the arguments name one. No other byte changes.
func SetDigests(manifest []byte, pins []Pin) ([]byte, error) {
	unfit := func(what, detail, hint string) error {
		return &Error{Code: ManifestUnfit, What: what, Detail: detail, Hint: hint}
	}
	if !utf8.Valid(manifest) || len(manifest) > doc.MaxBytes {
		return nil, unfit("", "the manifest is not UTF-8 or too large", "list the problems: ambit validate")
	}
	text := string(manifest)
	body := strings.TrimPrefix(text, "\uFEFF")
	e := &editor{text: body}
	r := diag.NewReporter(diag.NewSource("", body), false)
	tree, complete := doc.ParseJSON(r.Source, r)
	if !complete || r.Errors() > 0 {
		return nil, unfit("", "the manifest is not valid JSON", "list the problems: ambit validate")
	}
	servers := map[string]doc.Value{}
	for s := range tree.Root().Get("servers").Each() {
		alias := s.Get("alias").Text()
		if servers[alias].Ok() {
			return nil, unfit(diag.Quote(alias), "two servers have this alias", "give every server an alias of its own")
		}
		servers[alias] = s
	}
	for _, p := range pins {
		s := servers[p.Alias]
		if !s.Ok() {
			return nil, unfit(diag.Quote(p.Alias), "the manifest has no such server", "")
		}
		for _, field := range [][2]string{{"package_digest", p.Digest}, {"version", p.Version}} {
			key, value := field[0], field[1]
			v := s.Get(key)
			switch {
			case value == "":
			case !v.Is(doc.String):
				return nil, unfit(diag.Quote(p.Alias), diag.Quote(key)+" is missing", "add "+diag.Quote(key)+" to the server")
			default:
				e.set(v, value)
			}
		}
		if p.Version != "" {
			e.argument(s, p.Version)
		}
	}
	return []byte(text[:len(text)-len(body)] + e.apply()), nil
}

// editor collects replacements of strings.
type editor struct {
	text  string
	edits []edit
}

type edit struct {
	start, end int
	with       string
}

// set replaces a string, unless it already has this value.
func (e *editor) set(v doc.Value, value string) {
	if v.Text() == value {
		return
	}
	at := v.Place()
	quoted, err := jsontext.AppendQuote(nil, value)
	if err != nil {
		return // only text that is not UTF-8, which no digest, version or argument is
	}
	e.edits = append(e.edits, edit{at.Start, at.End, string(quoted)})
}

// argument sets the version in the argument that names the package.
func (e *editor) argument(server doc.Value, version string) {
	s := agent.Server{Transport: agent.Stdio, Command: server.Get("command").Text()}
	var args []doc.Value
	for a := range server.Get("args").Each() {
		args = append(args, a)
		s.Args = append(s.Args, a.Text())
	}
	ref, err := Identify(s)
	if err != nil || ref.Asked == "" {
		return
	}
	arg := args[ref.spec]
	e.set(arg, strings.TrimSuffix(arg.Text(), ref.Asked)+version)
}

func (e *editor) apply() string {
	slices.SortFunc(e.edits, func(a, b edit) int { return a.start - b.start })
	var b strings.Builder
	at := 0
	for _, x := range e.edits {
		if x.start < at {
			continue // the same pin twice
		}
		b.WriteString(e.text[at:x.start])
		b.WriteString(x.with)
		at = x.end
	}
	b.WriteString(e.text[at:])
	return b.String()
}
