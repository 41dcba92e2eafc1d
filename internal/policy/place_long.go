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
	starts, err := t.starts()
	if err != nil {
		return err
	}
	looks := false
	// Whatever follows, and whoever stops where, it touches the folder it starts with.
	for _, start := range starts {
		if !startsPath(start) {
			continue
		}
		looks = true
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
	size, out, err := t.least(stops)
	if err != nil {
		return err
	}
	if !looks && !out || !url && size > maxPath+maxAround {
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
		// Steps up to the root have no length where they lead.
		if len(fromRoot(cleanPath(form))) <= maxPath {
			forms = append(forms, form)
		}
	}
	if url && forms == nil {
		return errLongPath
	}
	return p.addForms(t, forms)
}

// levels are how a text starts with ever less around it, and ever less encoded.
func (t *spelt) levels() ([]string, error) {
	return t.level.get(func() (levels []string, err error) {
		_, err = settle(t.text, t.work, func(text string) (string, error) {
			levels = append(levels, strings.Clone(text[:min(len(text), maxStart)]))
			next, err := composed(bare(text), t.work)
			if err != nil {
				return "", err
			}
			if next = decoded(next); next == text {
				next = withoutScheme(text)
			}
			return next, nil
		})
		return levels, err
	})
}

// decoded is a text without what nobody sees, decoded once.
func decoded(s string) string { return percentDecoded(withoutInvisible(s)) }

// least is how many bytes every reading of a text as a path has at least, but for
// what stands in front of it, and whether one may lead out of where it starts.
//
// Readers differ in what a separator is. To all of them a plain slash is one, so a
// step up takes back no more than what is between two of these; and what is a step
// up to any of them counts as one.
func (t *spelt) least(stops string) (size int, out bool, err error) {
	var kept []int // the sizes of what is between slashes
	stopped := len(t.text)
	for between := range strings.SplitSeq(t.text, "/") {
		own := 0
		rest, sure, err := opened(between, t.work)
		if err != nil {
			return 0, false, err
		}
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
				} else {
					own += firm(tight)
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
	return min(size, stopped), out, nil
}

// opened is a text with all its separators and dots as such, and whether it has the
// same length to those who write its signs in other forms.
func opened(s string, work *int) (open string, sure bool, err error) {
	s, err = settle(s, work, func(s string) (string, error) { return decoded(s), nil })
	if err != nil {
		return "", false, err
	}
	if sure = norm.NFKC.IsNormalString(s) && !strings.ContainsRune(s, utf8.RuneError); !sure {
		s, err = settle(s, work, func(s string) (string, error) {
			next, err := composed(s, work)
			return decoded(next), err
		})
	}
	return slashed(s), sure, err
}

// firm is how many bytes a text has at least to those who write its signs in other
// forms: its letters from g to t. No escape has one of these, so no reader takes it
// for a part of another sign, and no sign is shorter than what it holds of them.
func firm(s string) (n int) {
	for i := range len(s) {
		if c := s[i] | 0x20; c >= 'g' && c <= 't' { // in either case
			n++
		}
	}
	return n
}

// settle changes a text until it stays as it is. To go through it once is no more
// than to read it, and most texts have a line's end to leave out; every other pass
// is work.
func settle(s string, work *int, change func(string) (string, error)) (string, error) {
	for pass := range maxLevels {
		next, err := change(s)
		if err != nil || next == s {
			return s, err
		}
		if pass > 0 {
			if err := spend(work, len(s)); err != nil {
				return "", err
			}
		}
		s = next
	}
	return "", errReadings
}

// composed is a text with its signs in their plain form, where one may become
// eleven times as long: what the text grows by is work, and stops when that is used
// up. To begin is work too, since there may be a text between any two slashes.
func composed(s string, work *int) (string, error) {
	if norm.NFKC.IsNormalString(s) {
		return s, nil
	}
	most := len(s) + maxWork - *work
	plain := make([]byte, 0, len(s))
	for rest := s; rest != "" && len(plain) <= most; {
		n := min(len(rest), 1<<16)
		plain = norm.NFKC.AppendString(plain, rest[:n])
		rest = rest[n:]
	}
	return string(plain), spend(work, max(16, len(plain)-len(s)))
}

// loose reports whether a sign is left out at the end of a path or of a part of it.
func loose(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(".\"'`<>", r) }
