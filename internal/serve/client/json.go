package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// leniency is what a client accepts beyond standard JSON.
type leniency int

const (
	standard leniency = iota
	comments
	trailing // comments and trailing commas
)

// jsonFile is a JSON file with its entries in the object under key.
type jsonFile struct {
	key   string
	reads leniency
	// typed entries have the type stdio.
	typed bool
}

func (f jsonFile) meaning(e Entry) any { return e.meaning(f.typed) }

// parsed is a parsed file and the object with its entries.
type parsed struct {
	mark string
	text []byte
	root *hujson.Object
	at   *hujson.Value // the root
	// holder is nil if there is none.
	holder *hujson.ObjectMember
	style  style
}

// style is the layout of the file.
type style struct {
	eol, unit string
	oneLine   bool
}

func (f jsonFile) parse(text []byte) (*parsed, error) {
	p := &parsed{}
	p.mark, p.text = splitMark(text)
	if blank(p.text) {
		p.text = []byte("{}" + eolOf(p.text))
	}
	v, err := hujson.Parse(p.text)
	if err != nil {
		return nil, fmt.Errorf("it is not valid JSON: %s", syntax(err))
	}
	if err := f.readable(v); err != nil {
		return nil, err
	}
	root, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("it does not contain a JSON object")
	}
	p.root, p.at = root, &v
	if p.holder, err = member(root, f.key); err != nil {
		return nil, err
	}
	if p.holder != nil {
		if _, ok := p.holder.Value.Value.(*hujson.Object); !ok {
			return nil, fmt.Errorf("its %q is not an object", f.key)
		}
	}
	p.style = style{eol: eolOf(p.text), unit: "  ", oneLine: len(root.Members) > 0 && !bytes.ContainsAny(bytes.TrimSpace(p.text), "\n")}
	if len(root.Members) > 0 {
		if indent, ok := indentOf(root.Members[0].Name.BeforeExtra); ok && indent != "" {
			p.style.unit = indent
		}
	}
	return p, nil
}

// syntax is a parser's error without the quoted text, which may be secret.
func syntax(err error) string {
	place, ok := strings.CutPrefix(err.Error(), "hujson: line ")
	if place, _, found := strings.Cut(place, ": "); ok && found {
		return "error in line " + place
	}
	return "syntax error"
}

// readable refuses syntax that the client itself would not accept.
func (f jsonFile) readable(v hujson.Value) error {
	if f.reads == trailing {
		return nil
	}
	if f.reads == standard && !v.IsStandard() {
		return errors.New("it contains comments or trailing commas, which this client does not accept")
	}
	for part := range v.All() {
		last := hujson.Extra(nil)
		switch c := part.Value.(type) {
		case *hujson.Object:
			if n := len(c.Members); n > 0 {
				last = c.Members[n-1].Value.AfterExtra
			}
		case *hujson.Array:
			if n := len(c.Elements); n > 0 {
				last = c.Elements[n-1].AfterExtra
			}
		}
		if last != nil {
			return errors.New("it contains a trailing comma, which this client does not accept")
		}
	}
	return nil
}

// member finds a member by name. It refuses duplicates, because programs disagree which one counts.
func member(o *hujson.Object, name string) (*hujson.ObjectMember, error) {
	var found *hujson.ObjectMember
	for i := range o.Members {
		if literal, ok := o.Members[i].Name.Value.(hujson.Literal); ok && literal.String() == name {
			if found != nil {
				return nil, fmt.Errorf("it contains %q twice", name)
			}
			found = &o.Members[i]
		}
	}
	return found, nil
}

// indentOf returns the white space before a token that starts a line.
func indentOf(before hujson.Extra) (indent string, startsLine bool) {
	i := bytes.LastIndexByte(before, '\n')
	if i < 0 {
		return "", false
	}
	tail := string(before[i+1:])
	return tail, strings.TrimSpace(tail) == ""
}

func (f jsonFile) get(text []byte, key string) (any, error) {
	p, err := f.parse(text)
	if err != nil || p.holder == nil {
		return nil, err
	}
	m, err := member(p.holder.Value.Value.(*hujson.Object), key)
	if err != nil || m == nil {
		return nil, err
	}
	plain := m.Value.Clone()
	plain.BeforeExtra, plain.AfterExtra = nil, nil
	plain.Standardize()
	d := json.NewDecoder(bytes.NewReader(plain.Pack()))
	d.UseNumber()
	var value any
	err = d.Decode(&value)
	return value, err
}

func (f jsonFile) set(text []byte, key string, e Entry) (edited, error) {
	p, err := f.parse(text)
	if err != nil {
		return edited{}, err
	}
	if p.holder == nil {
		s := p.style
		inner := s.unit + s.unit
		out := p.insert(p.at, "", f.key, func(indent string) string {
			if s.oneLine {
				return "{" + quoted(key) + ":" + f.render(e, s, "") + "}"
			}
			return "{" + s.eol + inner + quoted(key) + ": " + f.render(e, s, inner) + s.eol + indent + "}"
		})
		out.made = true
		return out, nil
	}
	holder := p.holder.Value.Value.(*hujson.Object)
	old, err := member(holder, key)
	if err != nil {
		return edited{}, err
	}
	outer, ok := indentOf(p.holder.Name.BeforeExtra)
	if !ok {
		outer = p.style.unit
	}
	if old != nil {
		indent, startsLine := indentOf(old.Name.BeforeExtra)
		s := p.style
		s.oneLine = !startsLine
		return p.done(old.Value.StartOffset, splice{old.Value.StartOffset, old.Value.EndOffset, f.render(e, s, indent)}), nil
	}
	return p.insert(&p.holder.Value, outer, key, func(indent string) string {
		s := p.style
		s.oneLine = s.oneLine || indent == ""
		return f.render(e, s, indent)
	}), nil
}

// insert adds a member at the end of an object. render gets the indentation of its line, which is
// empty if the object is on one line.
func (p *parsed) insert(object *hujson.Value, outer, name string, render func(indent string) string) edited {
	o := object.Value.(*hujson.Object)
	from, to := object.StartOffset+1, object.EndOffset-1
	inner := p.text[from:to]
	end := from + len(bytes.TrimRight(inner, " \t\r\n"))
	oneLine := p.style.oneLine || len(o.Members) > 0 && !bytes.ContainsAny(inner, "\n")
	indent := outer + p.style.unit
	comma, closing, last := "", "", from
	if n := len(o.Members); n > 0 {
		if own, ok := indentOf(o.Members[0].Name.BeforeExtra); ok {
			indent = own
		}
		last = o.Members[n-1].Value.EndOffset
		if o.Members[n-1].Value.AfterExtra != nil {
			closing = "," // like the author's trailing comma
		} else {
			comma = ","
		}
	}
	if oneLine {
		return p.done(end, splice{end, end, comma + quoted(name) + ":" + render("") + closing})
	}
	added := p.style.eol + indent + quoted(name) + ": " + render(indent) + closing
	if !bytes.ContainsAny(p.text[end:to], "\n") {
		added += p.style.eol + outer
	}
	return p.done(end, splice{last, last, comma}, splice{end, end, added})
}

// done applies splices; the last one is shown in the diff.
func (p *parsed) done(at int, splices ...splice) edited {
	shown := splices[len(splices)-1]
	line := lineAt(p.text, at)
	if strings.HasPrefix(shown.text, p.style.eol) {
		line++
	}
	return edited{
		text: append([]byte(p.mark), apply(p.text, splices...)...), line: line,
		removed: string(p.text[shown.from:shown.to]), added: shown.text,
	}
}

// render writes an entry with the indentation of its first line.
func (f jsonFile) render(e Entry, s style, indent string) string {
	var fields []string
	colon := ": "
	if s.oneLine {
		colon = ":"
	}
	add := func(name, value string) { fields = append(fields, quoted(name)+colon+value) }
	if f.typed {
		add("type", quoted("stdio"))
	}
	add("command", quoted(e.Command))
	add("args", quotedList(e.Args))
	if e.Home != "" {
		add("env", "{"+quoted(homeVariable)+colon+quoted(e.Home)+"}")
	}
	if s.oneLine {
		return "{" + strings.Join(fields, ",") + "}"
	}
	between := s.eol + indent + s.unit
	return "{" + between + strings.Join(fields, ","+between) + s.eol + indent + "}"
}

func (f jsonFile) remove(text []byte, key string, made bool) (edited, error) {
	p, err := f.parse(text)
	if err != nil {
		return edited{}, err
	}
	if p.holder == nil {
		return edited{text: text, line: 1}, nil
	}
	holder := p.holder.Value.Value.(*hujson.Object)
	if m, err := member(holder, key); m == nil || err != nil {
		return edited{text: text, line: 1}, err
	}
	out := p.cut(holder, key)
	again, err := f.parse(out.text)
	if err != nil {
		return edited{}, err
	}
	left := again.holder.Value.Value.(*hujson.Object)
	inner := again.text[again.holder.Value.StartOffset+1 : again.holder.Value.EndOffset-1]
	switch {
	case len(left.Members) > 0 || !blank(inner):
	case made:
		whole := again.cut(again.root, f.key)
		out.text = whole.text
		// The remaining object may have lost its only member.
		if last, err := f.parse(out.text); err == nil && len(last.root.Members) == 0 {
			out.text = last.collapse(last.at)
		}
	default:
		out.text = again.collapse(&again.holder.Value)
	}
	return out, nil
}

// cut removes a member with the white space before it, and one comma.
func (p *parsed) cut(o *hujson.Object, name string) edited {
	i := slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool {
		literal, ok := m.Name.Value.(hujson.Literal)
		return ok && literal.String() == name
	})
	m := o.Members[i]
	before := m.Name.BeforeExtra
	start := m.Name.StartOffset - (len(before) - len(bytes.TrimRight(before, " \t\r\n")))
	end := m.Value.EndOffset
	var splices []splice
	last := i == len(o.Members)-1
	switch {
	case !last || m.Value.AfterExtra != nil:
		end += len(m.Value.AfterExtra) + 1 // with the comma after it
	case i > 0:
		// The member before it is now the last one and loses its comma.
		comma := o.Members[i-1].Value.EndOffset + len(o.Members[i-1].Value.AfterExtra)
		start = max(start, comma+1)
		splices = append(splices, splice{comma, comma + 1, ""})
	}
	return p.done(m.Name.StartOffset, append(splices, splice{start, end, ""})...)
}

// collapse writes an empty object as {}, if it contains no comment.
func (p *parsed) collapse(object *hujson.Value) []byte {
	from, to := object.StartOffset+1, object.EndOffset-1
	if !blank(p.text[from:to]) {
		return append([]byte(p.mark), p.text...)
	}
	return append([]byte(p.mark), apply(p.text, splice{from, to, ""})...)
}
