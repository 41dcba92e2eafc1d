package literal_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

type found struct{ word, end int }

func scan(s *literal.Set, text []byte) []found {
	var h literal.Hits
	var out []found
	for from := 0; from < len(text); from += literal.Block {
		s.Scan(text, from, min(from+literal.Block, len(text)), &h)
		for _, lane := range h {
			for _, hit := range lane {
				for _, w := range s.Words(hit) {
					out = append(out, found{int(w), hit.End})
				}
			}
		}
	}
	return out
}

// naive searches for every word at every offset.
func naive(words []string, text []byte, cut int) []found {
	low := bytes.ToLower(text)
	var out []found
	for end := 1; end <= len(low); end++ {
		for i, w := range words {
			w = strings.ToLower(w)
			w = w[:min(len(w), cut)]
			if bytes.HasSuffix(low[:end], []byte(w)) {
				out = append(out, found{i, end})
			}
		}
	}
	return out
}

func sorted(f []found) []found {
	slices.SortFunc(f, func(a, b found) int {
		if a.end != b.end {
			return a.end - b.end
		}
		return a.word - b.word
	})
	return f
}

func TestFindsWhatANaiveSearchFinds(t *testing.T) {
	words := []string{"abc", "BCA", "cab", "aa", "abcabcabcabc", "c-c"}
	s, err := literal.New(words, 8)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 7, 63, 64, 255, 256, 257, 1000, 4099, literal.Block - 1, literal.Block + 3} {
		text := make([]byte, size)
		for i := range text {
			text[i] = "abcABC-."[r.IntN(8)]
		}
		got := scan(s, text)
		if !slices.IsSortedFunc(got, func(a, b found) int { return a.end - b.end }) {
			t.Errorf("text of %d bytes: the hits are not in order", size)
		}
		if want := naive(words, text, 8); !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("%d bytes: got %d hits, want %d", size, len(got), len(want))
		}
	}
}

func TestManyWordsAreCutShorter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	words := make([]string, 20_000)
	for i := range words {
		b := make([]byte, 12)
		for j := range b {
			b[j] = byte('a' + r.IntN(26))
		}
		words[i] = string(b)
	}
	s, err := literal.New(words, 8)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range words[:50] {
		if !slices.ContainsFunc(scan(s, []byte("  "+w+"  ")), func(f found) bool { return f.word == i }) {
			t.Errorf("word %d is not found", i)
		}
	}
}

func TestSimilarBytes(t *testing.T) {
	s, err := literal.New([]string{"all", "\xe2\x80"}, 8, "i1l", "a4", "\x80\x81")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"ALL": true, "a11": true, "4iL": true, "\xe2\x81": true, "al": false, "\xe2\x82": false, "bll": false} {
		if got := s.Contains([]byte(text)); got != want {
			t.Errorf("Contains(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestNoWords(t *testing.T) {
	s, err := literal.New(nil, 8)
	if err != nil {
		t.Fatal(err)
	}
	if got := scan(s, bytes.Repeat([]byte("abc "), 1000)); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

func BenchmarkScan(b *testing.B) {
	words := strings.Fields("password secret token apikey ghp_ glpat- akia asia xoxb- sk-ant -----begin api_ key- bearer")
	s, err := literal.New(words, 8)
	if err != nil {
		b.Fatal(err)
	}
	text := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog, and then it sleeps. "), 1600)
	var h literal.Hits
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for from := 0; from < len(text); from += literal.Block {
			s.Scan(text, from, min(from+literal.Block, len(text)), &h)
		}
	}
}
