package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/gateway/guard/pii"
)

// tally counts correct findings, wrong findings, and values that were missed.
type tally struct{ right, wrong, missed int }

func (s tally) precision() float64 { return ratio(s.right, s.right+s.wrong) }
func (s tally) recall() float64    { return ratio(s.right, s.right+s.missed) }

func ratio(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

func lines(t *testing.T, file string, each func(line []byte)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if len(sc.Bytes()) > 0 {
			each(sc.Bytes())
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestPersonalDataCorpus runs all categories over ambit's own corpus of personal data. A finding is right if its text
// and its category match.
func TestPersonalDataCorpus(t *testing.T) {
	f, err := pii.New(pii.Categories)
	if err != nil {
		t.Fatal(err)
	}
	scores := map[string]*tally{}
	lines(t, "testdata/pii.jsonl", func(line []byte) {
		var c struct {
			Category, Text, Key string
			Want                []string
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		s := scores[c.Category]
		if s == nil {
			s = &tally{}
			scores[c.Category] = s
		}
		want := slices.Clone(c.Want)
		for _, p := range f.Find([]byte(c.Text), []byte(c.Key), nil) {
			got := c.Text[p.Start:p.End]
			if i := slices.Index(want, got); i >= 0 && p.Category == c.Category {
				want = slices.Delete(want, i, i+1)
				s.right++
				continue
			}
			s.wrong++
			t.Logf("%s: wrong %s %q in %q", c.Category, p.Category, got, c.Text)
		}
		s.missed += len(want)
		for _, w := range want {
			t.Logf("%s: missed %q in %q", c.Category, w, c.Text)
		}
	})
	for _, category := range pii.Categories {
		s := scores[category]
		if s == nil || s.right+s.missed < 4 {
			t.Errorf("%s: too few cases", category)
			continue
		}
		if s.precision() < 0.95 || s.recall() < 0.95 {
			t.Errorf("%s: precision %.3f, recall %.3f", category, s.precision(), s.recall())
		}
	}
}

// TestSecretsCorpus scans ambit's own corpus of secrets. In the file each secret is split by a bar, so that secret
// scanners do not report the file as a leak.
func TestSecretsCorpus(t *testing.T) {
	var s tally
	lines(t, "testdata/secrets.jsonl", func(line []byte) {
		var c struct {
			Text   string
			Secret bool
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(c.Text, "¦", "")
		found := len(guard.Scan([]byte(text))) > 0
		switch {
		case found && c.Secret:
			s.right++
		case found:
			s.wrong++
			t.Logf("wrong: %s", c.Text)
		case c.Secret:
			s.missed++
			t.Logf("missed: %s", c.Text)
		}
	})
	if s.right+s.missed < 40 || s.precision() < 0.98 || s.recall() < 0.98 {
		t.Errorf("%d cases, precision %.3f, recall %.3f", s.right+s.missed, s.precision(), s.recall())
	}
}

// TestPromptsCorpus passes the harmless and harmful prompts of ambit's own corpus to the guard as arguments.
func TestPromptsCorpus(t *testing.T) {
	in, err := guard.NewInput(guard.InputRules{DenyDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	var s tally
	lines(t, "testdata/prompts.jsonl", func(line []byte) {
		var c struct {
			Text string
			Deny bool
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		_, _, refusal := in.Check(context.Background(), jsontext.Value(`{"prompt":`+quote(c.Text)+`}`))
		switch {
		case refusal != nil && c.Deny:
			s.right++
		case refusal != nil:
			s.wrong++
			t.Errorf("denied: %q: %s", c.Text, refusal.Message)
		case c.Deny:
			s.missed++
			t.Logf("passed: %q", c.Text)
		}
	})
	if s.right+s.missed < 20 || s.recall() < 0.9 {
		t.Errorf("%d cases, recall %.3f", s.right+s.missed, s.recall())
	}
}
