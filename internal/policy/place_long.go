package policy

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	// maxLevels is how many times a text may be wrapped and encoded.
	maxLevels = 16
	// maxAround is what can stand in front of a path: wrappers, and another root.
	maxAround = 1 << 10
	// ends are where some readers stop.
	ends = "\x00"
)

// addLong adds a long text that looks like a path. No system takes one of that
// length, and a text that starts like one is mostly prose. But /././etc is shorter
// than it looks: what may be short to somebody is read as any other text, within the
// same bounds. The URL of a file is no prose.
func (p *places) addLong(t *spelt) error {
	levels, err := t.levels()
	if err != nil {
		return err
	}
	stops, url := ends, false
	for _, level := range levels {
		if rest, ok := isFileURL(slashed(level)); ok {
			stops, url = ends+"?#", url || strings.HasPrefix(rest, "/")
		}
	}
	starts, err := t.pathStarts(levels)
	if err != nil {
		return err
	}
	// Whatever follows, and whoever stops where, it touches the folder it starts with.
	for _, start := range starts {
		clean := cleanPath(start)
		under, err := folders(clean)
		if err != nil {
			return err
		}
		p.addAny(under)
		if err := p.addLeads(t, clean); err != nil {
			return err
		}
	}
	size, out := least(t.text, stops)
	if starts == nil && !out || !url && size > maxPath+maxAround {
		return nil
	}
	all, err := t.readings()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, startsPath) {
		return nil
	}
	var forms []string
	for _, form := range all {
		if len(cleanPath(form)) <= maxPath {
			forms = append(forms, form)
		}
	}
	if url && forms == nil {
		return errLongPath
	}
	return p.addForms(t, forms)
}

// levels are a text with ever less around it, and ever less encoded.
func (t *spelt) levels() ([]string, error) {
	levels := []string{t.text}
	for text := t.text; len(levels) <= maxLevels; levels = append(levels, text) {
		next := decoded(norm.NFKC.String(bare(text)))
		if next == text {
			next = withoutScheme(text)
		}
		if next == text {
			return levels, nil
		}
		text = next
	}
	return nil, errReadings
}

// pathStarts are the readings of how a text starts, at any level, that look like a
// path.
func (t *spelt) pathStarts(levels []string) (starts []string, err error) {
	for _, level := range levels {
		forms, err := readings(level[:min(len(level), maxStart)], t.work)
		if err != nil {
			return nil, err
		}
		for _, form := range forms {
			if startsPath(form) && !slices.Contains(starts, form) {
				starts = append(starts, form)
			}
		}
	}
	return starts, nil
}

// decoded is a text without what nobody sees, decoded once.
func decoded(s string) string { return percentDecoded(withoutInvisible(s)) }

// least is how many bytes every reading of a text as a path has at least, but for
// what stands in front of it, and whether one may lead out of where it starts.
//
// Readers differ in what a separator is. To all of them a plain slash is one, so a
// step up takes back no more than what is between two of these; and what is a step
// up to any of them counts as one.
func least(text, stops string) (size int, out bool) {
	var kept []int // the sizes of what is between slashes
	stopped := len(text)
	for between := range strings.SplitSeq(text, "/") {
		own := 0
		rest, sure := opened(between)
		for more := true; more; {
			part := rest
			at := strings.IndexAny(rest, "/?#"+ends)
			if more = at >= 0; more {
				part, rest = rest[:at], rest[at:]
			}
			tight := strings.TrimFunc(part, loose)
			switch {
			case tight != "" || strings.Count(part, ".") < 2:
				if sure {
					own += len(tight)
				}
			case own > 0:
				own = 0
			case len(kept) > 0:
				size -= kept[len(kept)-1]
				kept = kept[:len(kept)-1]
			default:
				out = true
			}
			if more {
				if strings.IndexByte(stops, rest[0]) >= 0 {
					stopped = min(stopped, size+own)
				}
				rest = rest[1:]
			}
		}
		if own > 0 {
			kept, size = append(kept, own), size+own
		}
	}
	return min(size, stopped), out
}

// opened is a text with all its separators and dots as such, and whether it has the
// same length to those who write its signs in other forms.
func opened(s string) (open string, sure bool) {
	s = settle(s, decoded)
	if norm.NFKC.IsNormalString(s) && !strings.ContainsRune(s, utf8.RuneError) {
		return slashed(s), true
	}
	return slashed(settle(s, func(s string) string { return decoded(norm.NFKC.String(s)) })), false
}

// settle changes a text until it stays as it is.
func settle(s string, change func(string) string) string {
	for range maxLevels {
		next := change(s)
		if next == s {
			break
		}
		s = next
	}
	return s
}

// loose reports whether a sign is left out at the end of a path or of a part of it.
func loose(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(".\"'`<>", r) }
