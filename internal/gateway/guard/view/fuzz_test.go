package view_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// Range maps every byte of a view to a position in the source text, in the same order.
func FuzzRange(f *testing.F) {
	for _, s := range []string{
		`a\nb\u0041\ud83d\ude00c\"`, `\u00`, `\ud83d`, "x%41b%zz%20c", "g\u200bh\u2060p_x", "k\U000e0041e\ufe0fy", "xﬁy", "іgnоrе", "a\xffb\u200b", "ïgnörê",
	} {
		f.Add([]byte(s), uint8(len(s)))
	}
	views := []struct {
		name string
		make func(*view.View, []byte, int) bool
	}{
		{"JSON", func(v *view.View, src []byte, _ int) bool { return v.JSON(src) }},
		{"Unescape", func(v *view.View, src []byte, _ int) bool { return v.Unescape(src) }},
		{"Unpercent", func(v *view.View, src []byte, _ int) bool { return v.Unpercent(src) }},
		{"Strip", (*view.View).Strip},
		{"Normal", func(v *view.View, src []byte, _ int) bool { return v.Normal(src) }},
	}
	var v view.View // The views share one View, as in the scans.
	f.Fuzz(func(t *testing.T, src []byte, reach uint8) {
		for _, made := range views {
			if !made.make(&v, src, int(reach)) {
				continue
			}
			text := v.Text
			if made.name == "Strip" { // the bytes of a gap are not in the source
				text = bytes.ReplaceAll(text, []byte("\n\xff\n"), []byte("\x00\x00\x00"))
			}
			last := 0
			for i := range text {
				if made.name == "Strip" && text[i] == 0 {
					continue
				}
				from, to := v.Range(i, i+1)
				if from < last || to < from || to > len(src) {
					t.Fatalf("%s: byte %d of %q is mapped to bytes %d to %d of %q, and the previous byte to %d", made.name, i, v.Text, from, to, src, last)
				}
				last = from
			}
		}
	})
}

// The view of a JSON string is its decoded value.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`"a\nb"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dA"`, `"\\u0041"`, `"\/\"\b\f"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		var want string
		var v view.View
		src = bytes.TrimSpace(src)
		if !utf8.Valid(src) || json.Unmarshal(src, &want) != nil || !v.JSON(src) {
			return
		}
		if string(v.Text) != `"`+want+`"` {
			t.Fatalf("the view of %s is %q, want %q in quotes", src, v.Text, want)
		}
	})
}

// NextRun checks only a few bytes, but finds the same runs as a search that checks every byte.
func FuzzNextRun(f *testing.F) {
	f.Add([]byte("x dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcz8+ y"), uint8(0))
	f.Add([]byte("74686520717569636b2062726f776e20666f78 d41d8cd98f00b204e9800998ecf8427e"), uint8(3))
	f.Add([]byte(strings.Repeat(".", 40)+"aaaaaaaaaaaa"), uint8(0))
	f.Add([]byte("the key\r\naaaaaaaaaaaa\naaaaaaaaaaaa\naaaaaa\nof"), uint8(1))
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaa aaaaaaaaaaaaaaaaaaaaaaaa_-+/="), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, skip uint8) {
		at := min(int(skip), len(text))
		for {
			start, end := view.NextRun(text, at)
			if a, b := eachByte(text, at); a != start || b != end {
				t.Fatalf("NextRun(%q, %d) returned %d to %d, want %d to %d", text, at, start, end, a, b)
			}
			if start < 0 {
				return
			}
			if plain, ok := view.DecodeRun(nil, text[start:end]); ok && (len(plain) == 0 || len(plain) > end-start) {
				t.Fatalf("%q decodes to %q", text[start:end], plain)
			}
			at = end
		}
	})
}

// eachByte finds the next run byte by byte, and then line by line.
func eachByte(text []byte, at int) (start, end int) {
	member := func(c byte) bool {
		return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("+/-_\r\n", c) >= 0
	}
	for from := at; from < len(text); from++ {
		to := from
		for to < len(text) && member(text[to]) {
			to++
		}
		if to-from < view.MinRun {
			from = to
			continue
		}
		var lines [][2]int
		for i := from; i < to; i++ {
			first := i
			for i < to && text[i] != '\r' && text[i] != '\n' {
				i++
			}
			if i > first {
				lines = append(lines, [2]int{first, i})
			}
		}
		size := func(i int) int { return lines[i][1] - lines[i][0] }
		for i := 0; i < len(lines); {
			last := i
			for last+1 < len(lines) && size(last) == size(i) && size(last+1) <= size(i) {
				last++
			}
			if lines[last][1]-lines[i][0] >= view.MinRun {
				return lines[i][0], lines[last][1]
			}
			i = last + 1
		}
		from = to
	}
	return -1, -1
}
