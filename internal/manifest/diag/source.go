package diag

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// Source is the text of a file that is being parsed.
type Source struct {
	Name string
	Text string

	framing sync.Mutex // the mutex of the fields below, which Frame changes

	masks  [][2]int
	sorted int    // masks[:sorted] is sorted
	before func() // the function that BeforeFrames set
	// The first call of Position builds two indexes. The first one, lines, contains the offset of the first byte of each
	// line. The second one, chars, contains the number of characters before each block of charsBlock bytes. The indexes
	// make Position fast even for many problems on one line.
	lines []int
	chars []int
	few   bool // true if the source has so few problems that Position needs no indexes
}

const charsBlock = 1 << 10

// NewSource returns a source with the given name and text.
func NewSource(name, text string) *Source { return &Source{Name: name, Text: text} }

// Mask marks the bytes from start to end as a secret. A frame does not show secrets.
func (s *Source) Mask(start, end int) { s.masks = append(s.masks, [2]int{start, end}) }

// BeforeFrames sets a function that runs once, before the first frame is made. The function adds masks that only frames
// need. This work is delayed, because most files are never shown.
func (s *Source) BeforeFrames(mask func()) { s.before = mask }

// Masked reports whether any byte between two offsets is marked as a secret.
func (s *Source) Masked(start, end int) bool {
	i := s.firstMask(start)
	return i < len(s.masks) && s.masks[i][0] < end
}

// firstMask returns the index of the first mask that ends after an offset. It first sorts the masks and merges
// overlapping ones. Sorting is fast, because masks are added nearly in order.
func (s *Source) firstMask(off int) int {
	if s.sorted < len(s.masks) {
		byStart := func(a, b [2]int) int { return a[0] - b[0] }
		if !slices.IsSortedFunc(s.masks[max(s.sorted-1, 0):], byStart) {
			slices.SortFunc(s.masks, byStart)
			s.sorted = 0
		}
		kept := s.masks[:min(s.sorted, len(s.masks))]
		for _, m := range s.masks[s.sorted:] {
			if last := len(kept) - 1; last >= 0 && m[0] < kept[last][1] {
				kept[last][1] = max(kept[last][1], m[1])
				continue
			}
			kept = append(kept, m)
		}
		s.masks, s.sorted = kept, len(kept)
	}
	return sort.Search(len(s.masks), func(i int) bool { return s.masks[i][1] > off })
}

// Position converts a byte offset to a line and a column. Lines and columns start at 1.
func (s *Source) Position(off int) (line, column int) {
	off = min(max(off, 0), len(s.Text))
	if s.lines == nil && s.few {
		start := strings.LastIndexByte(s.Text[:off], '\n') + 1
		return strings.Count(s.Text[:off], "\n") + 1, utf8.RuneCountInString(s.Text[start:off]) + 1
	}
	if s.lines == nil {
		s.index()
	}
	line = sort.SearchInts(s.lines, off+1)
	return line, s.charsBefore(off) - s.charsBefore(s.lines[line-1]) + 1
}

func (s *Source) index() {
	s.lines = []int{0}
	n := 0
	for i := range len(s.Text) {
		if i%charsBlock == 0 {
			s.chars = append(s.chars, n)
		}
		if utf8.RuneStart(s.Text[i]) {
			n++
		}
		if s.Text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	s.chars = append(s.chars, n)
}

func (s *Source) charsBefore(off int) int {
	block := min(off/charsBlock, len(s.chars)-1)
	n := s.chars[block]
	for i := block * charsBlock; i < off; i++ {
		if utf8.RuneStart(s.Text[i]) {
			n++
		}
	}
	return n
}

// Frame is the source line of a problem, prepared for a terminal. Long lines are shortened, secrets are masked, and
// control characters are escaped.
type Frame struct {
	Line   int
	Text   string // the line to print
	Before int    // the number of columns to the left of the problem
	Marked int    // the width of the problem in columns
}

const (
	frameWidth  = 96
	frameBefore = 48
	// maskMargin is the number of bytes before and after a frame that are also searched for secrets. A secret can start
	// before the frame or end after it.
	maskMargin = 4096
	mask       = "••••••"
)

// Frame returns the frame of a diagnostic. The diagnostic must come from this source's reporter. Several goroutines can
// call Frame at the same time. The other methods are not safe for concurrent use.
func (s *Source) Frame(d Diagnostic) Frame {
	s.framing.Lock()
	defer s.framing.Unlock()
	if s.before != nil {
		s.before()
		s.before = nil
	}
	start := min(max(d.start, 0), len(s.Text))
	lineStart := strings.LastIndexByte(s.Text[:start], '\n') + 1
	lineEnd := len(s.Text)
	if i := strings.IndexByte(s.Text[start:], '\n'); i >= 0 {
		lineEnd = start + i
	}
	lineEnd = max(lineStart, lineStart+len(strings.TrimSuffix(s.Text[lineStart:lineEnd], "\r")))
	end := min(max(d.end, start), lineEnd)
	from, to := lineStart, lineEnd
	var lead, trail string
	// Show only a part of a long line. A minified manifest can be a single line of several megabytes.
	if start-from > frameBefore*utf8.UTFMax {
		from = s.runeStart(start - frameBefore)
		lead = "…"
	}
	if to-from > frameWidth*utf8.UTFMax {
		to = s.runeStart(max(from+frameWidth, min(end, from+2*frameWidth)))
		trail = "…"
	}
	end = min(end, to)
	s.maskSecrets(max(lineStart, from-maskMargin), min(lineEnd, to+maskMargin))
	line, _ := s.Position(start)
	before := lead + s.clean(from, start)
	marked := s.clean(start, end)
	// A secret that crosses the start or the end of the marked text is masked on both sides. Print only one mask.
	if strings.HasSuffix(before, mask) && strings.HasPrefix(marked, mask) {
		before = strings.TrimSuffix(before, mask)
	}
	rest := s.clean(end, to)
	if strings.HasSuffix(marked, mask) && strings.HasPrefix(rest, mask) {
		rest = strings.TrimPrefix(rest, mask)
	}
	return Frame{
		Line:   line,
		Text:   before + marked + rest + trail,
		Before: utf8.RuneCountInString(before),
		Marked: max(1, utf8.RuneCountInString(marked)),
	}
}

// maskSecrets masks all text between two offsets that looks like a secret. The rules check only parsed values, but a
// frame also shows comments and the text after a syntax error.
func (s *Source) maskSecrets(from, to int) {
	for _, f := range secretlike.All(s.Text[from:to]) {
		s.Mask(from+f.Start, from+f.End)
	}
}

func (s *Source) runeStart(off int) int {
	for off > 0 && off < len(s.Text) && !utf8.RuneStart(s.Text[off]) {
		off--
	}
	return off
}

// clean returns the text between two offsets, masked and printable.
func (s *Source) clean(start, end int) string {
	if start >= end {
		return ""
	}
	var b strings.Builder
	pos := start
	for _, m := range s.masks[s.firstMask(start):] {
		if m[0] >= end {
			break
		}
		if m[1] <= pos {
			continue
		}
		if m[0] > pos {
			b.WriteString(Printable(s.Text[pos:m[0]]))
		}
		b.WriteString(mask)
		pos = min(m[1], end)
	}
	b.WriteString(Printable(s.Text[pos:end]))
	return b.String()
}

// Printable makes a string safe for a terminal and unambiguous for a reader. Control, formatting and
// direction-changing characters are escaped. A tab becomes a space. Invalid UTF-8 is replaced, because some terminals
// interpret invalid bytes.
func Printable(s string) string {
	if isVisible(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case Unseen(r):
			b.WriteString(escape(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isVisible reports whether a string is valid UTF-8 without invisible characters.
func isVisible(s string) bool { return strings.IndexFunc(s, Unseen) < 0 && utf8.ValidString(s) }

// Unseen reports whether a character is invisible or controls a terminal. unicode.IsPrint alone is not enough, because
// it accepts invisible fillers and blanks that Unicode classifies as letters and symbols.
func Unseen(r rune) bool {
	return r != ' ' && (!unicode.IsPrint(r) || hiddenKind(r) != "")
}

func escape(r rune) string {
	if r > 0xFFFF {
		return fmt.Sprintf(`\U%06x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
