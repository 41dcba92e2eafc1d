package secret

import (
	"bytes"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// scan holds the state of a scan of one text.
type scan struct {
	*Engine
	hits   literal.Hits
	done   []int // the end of the last match of each rule
	known  *Known
	work   int // how many more bytes the scan is allowed to process
	levels [maxDepth + 1]level
}

// level contains the buffers for one level of decoding.
type level struct {
	strip, unescape, unpercent view.View
	decoded                    []byte
}

// The limits of a scan.
const (
	maxDepth  = 2
	freeWork  = 2 << 20
	workAByte = 4
	window    = 4 << 10 // the first window size to try if the rule has no maximum length
	maxMatch  = 64 << 10
)

// Scan appends the secrets in text to dst, in order and without overlaps. If known is not nil, Scan also looks for the
// stored credentials.
func (e *Engine) Scan(text []byte, known *Known, dst []Match) ([]Match, error) {
	s := e.scratch.Get().(*scan)
	defer e.scratch.Put(s)
	s.known = known
	s.work = freeWork + workAByte*len(text)
	from := len(dst)
	dst = s.scanLayer(text, 0, dst)
	if s.work < 0 {
		return dst, ErrTooHard
	}
	return dst[:from+len(Merge(dst[from:]))], nil
}

// Merge sorts matches and joins overlapping matches in place.
func Merge(m []Match) []Match {
	if len(m) < 2 {
		return m
	}
	slices.SortStableFunc(m, func(a, b Match) int {
		if a.Start != b.Start {
			return a.Start - b.Start
		}
		return b.End - a.End
	})
	out := m[:1]
	for _, next := range m[1:] {
		last := &out[len(out)-1]
		if next.Start >= last.End {
			out = append(out, next)
			continue
		}
		if next.rank < last.rank {
			last.Rule, last.rank = next.Rule, next.rank
		}
		last.End = max(last.End, next.End)
	}
	return out
}

// scanLayer scans a text and everything that can be decoded from it. If the text has backslash escapes, only the text
// with decoded escapes is scanned. This misses no secret, because secrets contain no backslashes.
func (s *scan) scanLayer(text []byte, depth int, dst []Match) []Match {
	l, from := &s.levels[depth], len(dst)
	unescaped := hasEscapes(text) && l.unescape.Unescape(text)
	if unescaped {
		text = l.unescape.Text
	}
	dst, hidden := s.scanOnce(text, dst)
	if hidden && l.strip.Strip(text, maxMatch/4) {
		dst = s.scanView(&l.strip, dst)
	}
	dst = s.scanPercent(text, l, dst)
	if depth < maxDepth {
		dst = s.scanEncoded(text, depth, dst)
	}
	if unescaped {
		mapBack(&l.unescape, dst[from:])
	}
	return dst
}

// scanView scans a view and maps the matches back to the view's source.
func (s *scan) scanView(v *view.View, dst []Match) []Match {
	from := len(dst)
	dst, _ = s.scanOnce(v.Text, dst)
	mapBack(v, dst[from:])
	return dst
}

// rank returns the rank of a rule's matches. The least specific rule has the highest rank.
func (r *rule) rank(index int) int {
	if r.ID == "generic-api-key" {
		return math.MaxInt
	}
	return index + 1
}

func mapBack(v *view.View, m []Match) {
	for i := range m {
		m[i].Start, m[i].End = v.Range(m[i].Start, m[i].End)
	}
}

// scanOnce scans a text once, without decoding it. The second result reports whether the text has invisible characters.
func (s *scan) scanOnce(text []byte, dst []Match) (_ []Match, hidden bool) {
	clear(s.done)
	for from := 0; from < len(text); from += literal.Block {
		s.set.Scan(text, from, min(from+literal.Block, len(text)), &s.hits)
		for _, lane := range s.hits {
			for _, hit := range lane {
				for _, w := range s.set.Words(hit) {
					for i := range s.words[w] {
						p := &s.words[w][i]
						if p.rule == nil {
							hidden = hidden || invisible(text[hit.End-s.set.Size(w):])
						} else if start := hit.End - s.set.Size(w) - p.shape.offset; start >= s.done[p.index] &&
							p.shape.matchesAt(text, start) {
							dst = s.verify(text, start, p, dst)
						}
					}
				}
			}
		}
	}
	if s.known != nil {
		dst = s.known.findValues(text, &s.hits, dst)
	}
	return dst, hidden
}

func invisible(text []byte) bool {
	r, _ := utf8.DecodeRune(text)
	return view.Invisible(r)
}

// matchesAt reports whether the text at offset start has this shape.
func (p *shape) matchesAt(text []byte, start int) bool {
	if start < 0 || start+len(p.sets) > len(text) {
		return false
	}
	for i, c := range text[start : start+len(p.sets)] {
		if !p.sets[i][c] {
			return false
		}
	}
	if start == 0 {
		return true
	}
	return !p.begin && !(p.word && wordByte(text[start-1]) == wordByte(text[start]))
}

func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// verify checks a candidate at offset start against its rule. If the candidate is a secret, verify appends a match to
// dst.
func (s *scan) verify(text []byte, start int, p *place, dst []Match) []Match {
	r := p.rule
	if r.value != nil && !r.value.canFollow(text, start+len(p.shape.sets)) {
		return dst
	}
	if r.precheck != nil && !r.precheck(text[start:]) {
		return dst
	}
	if r.pem {
		end := keyEnd(text, start)
		if end > 0 {
			s.done[p.index] = end
			dst = append(dst, Match{r.ID, start, end, p.index + 1})
		}
		return dst
	}
	loc, cut := s.match(r, text, start)
	if loc == nil {
		return dst
	}
	from, to := start+loc[0], start+loc[1]
	group := r.Group
	if group == 0 {
		for i := 1; i < len(loc)/2; i++ {
			if loc[2*i] < loc[2*i+1] {
				group = i
				break
			}
		}
	}
	a, b := start+loc[2*group], start+loc[2*group+1]
	if a >= b {
		return dst
	}
	if r.Entropy > 0 && entropy(text[a:b]) <= r.Entropy {
		return dst
	}
	first := from
	if r.value != nil {
		for n := 0; n < 50 && first > 0 && (wordByte(text[first-1]) || text[first-1] == '.' || text[first-1] == '-'); n++ {
			first--
		}
	}
	s.done[p.index] = to
	if s.isAllowed(text, r, a, b, first, to) {
		return dst
	}
	if cut {
		b = to // the window ended inside the secret
	}
	return append(dst, Match{r.ID, a, b, r.rank(p.index)})
}

// match matches a rule's expression at offset start, in a window of limited size. If the match reaches the end of the
// window, match tries a larger window. The second result reports whether the match reached the end of even the largest
// window.
func (s *scan) match(r *rule, text []byte, start int) (loc []int, cut bool) {
	reach := window
	if r.reach > 0 {
		reach = r.reach + 4
	}
	for {
		end := min(start+reach, len(text))
		if s.work -= end - start; s.work < 0 {
			return nil, false
		}
		loc = r.regex().FindSubmatchIndex(text[start:end])
		cut = loc != nil && start+loc[1] == end && end < len(text)
		if !cut || reach >= maxMatch {
			return loc, cut
		}
		reach *= 4
	}
}

// isAllowed reports whether an allowlist says that a match is not a secret.
func (s *scan) isAllowed(text []byte, r *rule, a, b, first, to int) bool {
	line := func() []byte {
		from, end := max(0, first-window), min(len(text), to+window)
		if i := bytes.LastIndexByte(text[from:first], '\n'); i >= 0 {
			from += i + 1
		}
		if i := bytes.IndexByte(text[to:end], '\n'); i >= 0 {
			end = to + i
		}
		return text[from:end]
	}
	for _, list := range [...][]Allow{s.allow, r.Allow} {
		for i := range list {
			var l []byte
			if list[i].Target == "line" {
				l = line()
			}
			if list[i].allows(text[a:b], text[first:to], l) {
				return true
			}
		}
	}
	return false
}
