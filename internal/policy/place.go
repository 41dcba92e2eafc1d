package policy

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// places are what texts could mean, and what that lies under.
type places struct {
	// values are the places themselves; any is all that at least one of them is
	// or lies under, all what every one is or lies under.
	values, any, all map[string]bool
	some             bool
}

// add takes one reading with everything it lies under, itself included: a line
// from the longest to the shortest.
func (p *places) add(value string, under []string) {
	if p.values == nil {
		p.values = map[string]bool{}
	}
	p.values[value] = true
	p.addAny(under)
	if p.some {
		maps.DeleteFunc(p.all, func(u string, _ bool) bool {
			at, ok := slices.BinarySearchFunc(under, len(u), func(one string, n int) int { return n - len(one) })
			return !ok || under[at] != u
		})
		return
	}
	p.all, p.some = make(map[string]bool, len(under)), true
	for _, u := range under {
		p.all[u] = true
	}
}

// addAny takes a line. What one that is there lies under is there too.
func (p *places) addAny(under []string) {
	if p.any == nil {
		p.any = map[string]bool{}
	}
	for _, u := range under {
		if p.any[u] {
			return
		}
		p.any[u] = true
	}
}

// unknown takes a text that means something, and nobody knows what.
func (p *places) unknown() { p.all, p.some = nil, true }

func (p *places) record() types.Value {
	return types.NewRecord(types.RecordMap{"values": set(p.values), "any_under": set(p.any), "all_under": set(p.all)})
}

// The bounds of a path. No system takes a longer one.
const (
	maxPath     = 4 << 10
	maxSegments = 256
	maxReadings = 64
	maxStart    = 512
	// maxWork bounds the bytes that are looked at to find all readings of all
	// texts of a call.
	maxWork = 8 << 20
)

var (
	errLongPath = errors.New("it is too long")
	errReadings = errors.New("it can be read in too many ways")
)

// addPath adds every reading of a text as a path. Nothing is looked up: links
// are not followed. A relative path stays relative, since what folder a tool reads
// it from is its own business; where that should be one, it touches that too.
func (p *places) addPath(t *spelt) error {
	if len(t.text) > maxPath {
		return errLongPath
	}
	forms, err := t.readings()
	if err != nil {
		return err
	}
	return p.addForms(t, forms)
}

// addForms adds readings of a text as paths.
func (p *places) addForms(t *spelt, forms []string) error {
	for _, form := range forms {
		clean := cleanPath(form)
		under, err := folders(clean)
		if err != nil {
			return err
		}
		p.add(clean, under)
		if err := p.addLeads(t, clean); err != nil {
			return err
		}
	}
	return nil
}

// addLeads adds what a clean path may lead to besides what it says.
func (p *places) addLeads(t *spelt, clean string) error {
	if t.base != "" && clean[0] != '/' && !isDrive(clean) {
		under, err := folders(path.Join(slashed(t.base), clean))
		if err != nil {
			return err
		}
		p.addAny(under)
	}
	// Enough steps up lead to the root, wherever they start.
	if rooted := fromRoot(clean); rooted != clean && rooted != "/" {
		under, err := folders(rooted)
		if err != nil {
			return err
		}
		p.addAny(under)
	}
	return nil
}

// addPaths adds a text as a path, and as the list of paths that some tools would
// take it for. What does not look like a path is no part of a list: a comma stands
// in many names.
func (p *places) addPaths(t *spelt) error {
	if err := p.addPath(t); err != nil {
		return err
	}
	for _, item := range jsonTexts(t.text) {
		if err := p.addPath(t.part(item)); err != nil {
			return err
		}
	}
	separators, colons := listSeparators, []string(nil)
	if strings.HasPrefix(t.text, "/") {
		separators += ":"
	} else if strings.Contains(t.text, ":") {
		colons = listed(t.text, separators+":")
	}
	for i, part := range listed(t.text, separators) {
		one := t.part(part)
		if !looksLikePath(one) {
			continue
		}
		var read places
		if err := read.addPath(one); err != nil {
			return err
		}
		if i == 0 && p.goOn(read.values) {
			// A permit of "/srv/my files" holds for it, though "/srv/my" is elsewhere.
			maps.Copy(p.values, read.values)
			maps.Copy(p.any, read.any)
		} else if err := p.addPath(one); err != nil {
			return err
		}
	}
	// src:/etc is a list, C:/etc a place on a drive and h:/etc one on a host: what
	// is behind the colon is touched, and no permit asks for it.
	for _, part := range colons {
		if one := t.part(part); looksLikePath(one) {
			var read places
			if err := read.addPath(one); err != nil {
				return err
			}
			maps.Copy(p.any, read.any)
		}
	}
	return nil
}

// goOn reports whether every one of these paths is how the name of a file or
// folder begins that is there, so that both lie in the same folder.
func (p *places) goOn(starts map[string]bool) bool {
	for start := range starts {
		if start == "." || climbs(start) || strings.HasSuffix(start, "/") {
			return false
		}
		longer := false
		for whole := range p.values {
			rest, ok := strings.CutPrefix(whole, start)
			longer = longer || ok && rest != "" && rest[0] != '/'
		}
		if !longer {
			return false
		}
	}
	return true
}

// listSeparators are what tools put between places in one text.
const listSeparators = ",;| \t\r\n"

// listed are the parts of a text, none if it has one.
func listed(text, separators string) []string {
	if !strings.ContainsAny(text, separators) {
		return nil
	}
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) })
}

// jsonTexts are all texts in a list or object that is written as JSON in a text,
// as models tend to do; none if it is no such thing.
func jsonTexts(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" || text[0] != '[' && text[0] != '{' {
		return nil
	}
	d := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var texts []string
	for {
		t, err := d.ReadToken()
		if err != nil {
			return texts // what was read up to here could be all that a tool reads
		}
		if t.Kind() == '"' {
			texts = append(texts, t.String())
		}
	}
}

// cleanPath is the shortest form of a path, with / between its parts. A drive
// letter is a capital, and no steps up lead out of it.
func cleanPath(s string) string {
	if isDrive(s) {
		return strings.ToUpper(s[:1]) + ":" + path.Clean("/"+s[2:])
	}
	return path.Clean(s)
}

func isDrive(s string) bool { return len(s) >= 2 && s[1] == ':' && isLetter(s[0]) }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// folders are a clean path and everything above it.
func folders(clean string) ([]string, error) {
	all := make([]string, 0, min(strings.Count(clean, "/")+1, maxSegments))
	for at := clean; ; {
		if all = append(all, at); len(all) > maxSegments {
			return nil, errLongPath
		}
		switch end := strings.LastIndexByte(at, '/'); {
		case end < 0 || at == "/":
			return all, nil
		case end == 0:
			at = "/"
		default:
			at = at[:end]
		}
	}
}

// fromRoot is a clean path that climbs, as seen from the root.
func fromRoot(clean string) string {
	if !climbs(clean) {
		return clean
	}
	for climbs(clean) {
		clean = strings.TrimPrefix(clean[2:], "/")
	}
	return "/" + clean
}

// looksLikePath reports whether a text is a path by its looks, whatever the name
// of its argument: it starts at a root, a home or here, or leads out of here.
func looksLikePath(t *spelt) bool {
	starts, err := t.starts()
	if err != nil || slices.ContainsFunc(starts, startsPath) {
		return true // whoever looks closer finds the same
	}
	if len(t.text) <= maxStart {
		return false
	}
	if _, out, err := t.least(ends); err != nil || !out {
		return err != nil
	}
	forms, err := t.readings()
	return err != nil || slices.ContainsFunc(forms, startsPath)
}

// startsPath is looksLikePath for one reading.
func startsPath(f string) bool {
	switch {
	case f == "." || f == "..", strings.HasPrefix(f, "/"), strings.HasPrefix(f, "~"), strings.HasPrefix(f, "./"), strings.HasPrefix(f, "../"):
		return true
	case len(f) >= 3 && isLetter(f[0]) && f[1] == ':' && f[2] == '/':
		return true
	}
	return strings.Contains(f, "/..") && climbs(path.Clean(f)) // x/../../etc
}

// climbs reports whether a clean path leads out of where it starts.
func climbs(clean string) bool { return clean == ".." || strings.HasPrefix(clean, "../") }

// addLooks adds a text that looks like a path, whatever the name of its argument.
func (p *places) addLooks(t *spelt) error {
	if len(t.text) <= maxPath {
		if looksLikePath(t) {
			return p.addPath(t)
		}
		return nil
	}
	return p.addLong(t)
}

// vocabulary are words in the names of arguments.
type vocabulary map[string]bool

func (v vocabulary) any(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return v[w] })
}

func words(all string) vocabulary {
	v := vocabulary{}
	for w := range strings.FieldsSeq(all) {
		v[w] = true
	}
	return v
}

var (
	pathWords = words("path paths file files filename filenames filepath filepaths dir dirs directory directories folder folders cwd root roots src dst dest source destination")
	hostWords = words("host hosts hostname hostnames domain domains url urls uri uris endpoint endpoints address site origin")
	baseWords = words("database databases db dbname dbs schema catalog keyspace")
)

// wordsOf splits the name of an argument: filePath, file_path and file-path are
// file and path.
func wordsOf(key string) []string {
	var all []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			all = append(all, word.String())
			word.Reset()
		}
	}
	lower := false
	for _, r := range key {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			end()
		}
		lower = !unicode.IsUpper(r)
		word.WriteRune(unicode.ToLower(r))
	}
	end()
	return all
}

// quote writes a name that came with a call.
func quote(s string) string { return diag.Quote(s) }
