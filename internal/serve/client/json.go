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

// leniency describes which syntax a client accepts in addition to standard JSON.
type leniency int

const (
	standard leniency = iota
	comments
	trailing // comments and trailing commas
)

// jsonFile edits a JSON file. The entries are in the object that is the value of one top-level member.
type jsonFile struct {
	key   string // the name of the top-level member
	reads leniency
	shape shape
}

func (f jsonFile) valueOf(e Entry) any { return f.shape.value(e) }

// parsed is a parsed JSON file.
type parsed struct {
	mark   string // the byte order mark, or empty
	text   []byte // the file without the byte order mark
	root   *hujson.Object
	at     *hujson.Value        // the whole document; root is its top-level object
	holder *hujson.ObjectMember // the member that contains the entries, or nil
	style  style
}

// style is the layout of a file.
type style struct {
	eol, unit string // the line ending, and the indentation of one level
	oneLine   bool   // the whole file is a single line
}

func (f jsonFile) parse(text []byte) (*parsed, error) {
	p := &parsed{}
	p.mark, p.text = splitMark(text)
	if blank(p.text) {
		p.text = []byte("{}" + eolOf(p.text))
	}
	v, err := hujson.Parse(p.text)
	if err != nil {
		return nil, fmt.Errorf("the file is not valid JSON: %s", errorPosition(err))
	}
	if err := f.checkSyntax(v, p.text); err != nil {
		return nil, err
	}
	root, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("the file does not contain a JSON object")
	}
	p.root, p.at = root, &v
	if p.holder, err = member(root, f.key); err != nil {
		return nil, err
	}
	if p.holder != nil {
		if _, ok := p.holder.Value.Value.(*hujson.Object); !ok {
			return nil, fmt.Errorf("the value of %q is not an object", f.key)
		}
	}
	p.style = style{eol: eolOf(p.text), unit: "  "}
	p.style.oneLine = len(root.Members) > 0 && !bytes.Contains(bytes.TrimSpace(p.text), []byte("\n"))
	if len(root.Members) > 0 {
		if indent, ok := indentOf(root.Members[0].Name.BeforeExtra); ok && indent != "" {
			p.style.unit = indent
		}
	}
	return p, nil
}

// errorPosition returns only the position of a syntax error. The rest of the parser's message quotes the file and could
// reveal a secret.
func errorPosition(err error) string {
	place, ok := strings.CutPrefix(err.Error(), "hujson: line ")
	if place, _, found := strings.Cut(place, ": "); ok && found {
		return "error on line " + place
	}
	return "syntax error"
}

// standardLine returns the number of the line on which a file stops being standard JSON.
func standardLine(content []byte) int {
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(content, new(any)), &syntax) {
		content = content[:syntax.Offset]
	}
	return 1 + bytes.Count(content, []byte("\n"))
}

// checkSyntax returns an error if the file contains syntax that the client does not accept.
func (f jsonFile) checkSyntax(v hujson.Value, content []byte) error {
	if f.reads == trailing {
		return nil
	}
	if f.reads == standard && !v.IsStandard() {
		return fmt.Errorf("line %d has a comment or a trailing comma, which this client does not accept; remove every comment "+
			"and trailing comma", standardLine(content))
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
			return errors.New("the file contains a trailing comma, which this client does not accept")
		}
	}
	return nil
}

// member returns the member with this name, or nil. It fails if two members have this name, because programs disagree
// about which of them to use.
func member(o *hujson.Object, name string) (*hujson.ObjectMember, error) {
	var found *hujson.ObjectMember
	for i := range o.Members {
		if isNamed(&o.Members[i], name) {
			if found != nil {
				return nil, fmt.Errorf("the file contains %q twice", name)
			}
			found = &o.Members[i]
		}
	}
	return found, nil
}

func isNamed(m *hujson.ObjectMember, name string) bool {
	literal, ok := m.Name.Value.(hujson.Literal)
	return ok && literal.String() == name
}

// indentOf returns the indentation of a token. The parameter contains the white space and comments before the token.
// The second result reports whether the token is the first one on its line.
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
				return "{" + quote(key) + ":" + f.render(e, s, "") + "}"
			}
			return "{" + s.eol + inner + quote(key) + ": " + f.render(e, s, inner) + s.eol + indent + "}"
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
		return p.edit(old.Value.StartOffset, splice{old.Value.StartOffset, old.Value.EndOffset, f.render(e, s, indent)}), nil
	}
	return p.insert(&p.holder.Value, outer, key, func(indent string) string {
		s := p.style
		s.oneLine = s.oneLine || indent == ""
		return f.render(e, s, indent)
	}), nil
}

// insert adds a member at the end of an object. The parameter outer is the indentation of the object's closing brace.
// The callback gets the indentation of the new member's line, or "" if the object is on one line. It returns the text
// of the member's value.
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
			closing = "," // the last member has a trailing comma, so the new one gets a trailing comma too
		} else {
			comma = ","
		}
	}
	if oneLine {
		return p.edit(end, splice{end, end, comma + quote(name) + ":" + render("") + closing})
	}
	added := p.style.eol + indent + quote(name) + ": " + render(indent) + closing
	if !bytes.ContainsAny(p.text[end:to], "\n") {
		added += p.style.eol + outer
	}
	return p.edit(end, splice{last, last, comma}, splice{end, end, added})
}

// edit applies the splices and returns the result. The diff shows only the last splice, with the line number of the
// given offset. If the text of the last splice begins with a line break, the diff shows the next line number.
func (p *parsed) edit(at int, splices ...splice) edited {
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

// render returns the entry as JSON. The indentation is that of the line on which the entry begins.
func (f jsonFile) render(e Entry, s style, indent string) string {
	var fields []string
	colon := ": "
	if s.oneLine {
		colon = ":"
	}
	for _, of := range f.shape.of(e) {
		fields = append(fields, quote(of.name)+colon+literal(of.value, colon))
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
		// The top-level object may be empty now.
		if last, err := f.parse(out.text); err == nil && len(last.root.Members) == 0 {
			out.text = last.collapse(last.at)
		}
	default:
		out.text = again.collapse(&again.holder.Value)
	}
	return out, nil
}

// cut removes a member, the white space before it, and one comma.
func (p *parsed) cut(o *hujson.Object, name string) edited {
	i := slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool { return isNamed(&m, name) })
	m := o.Members[i]
	before := m.Name.BeforeExtra
	start := m.Name.StartOffset - (len(before) - len(bytes.TrimRight(before, " \t\r\n")))
	end := m.Value.EndOffset
	var splices []splice
	last := i == len(o.Members)-1
	switch {
	case !last || m.Value.AfterExtra != nil:
		end += len(m.Value.AfterExtra) + 1 // also remove the comma after the member
	case i > 0:
		// The previous member becomes the last one, so the comma after it must be removed.
		comma := o.Members[i-1].Value.EndOffset + len(o.Members[i-1].Value.AfterExtra)
		start = max(start, comma+1)
		splices = append(splices, splice{comma, comma + 1, ""})
	}
	return p.edit(m.Name.StartOffset, append(splices, splice{start, end, ""})...)
}

// collapse returns the file with the given empty object written as {}. If the object contains a comment, collapse
// returns the file unchanged.
func (p *parsed) collapse(object *hujson.Value) []byte {
	from, to := object.StartOffset+1, object.EndOffset-1
	if !blank(p.text[from:to]) {
		return append([]byte(p.mark), p.text...)
	}
	return append([]byte(p.mark), apply(p.text, splice{from, to, ""})...)
}
