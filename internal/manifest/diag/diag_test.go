package diag

import (
	"strings"
	"testing"
)

func TestPosition(t *testing.T) {
	s := NewSource("x", "ab\ncé😀d\r\n\n"+strings.Repeat("é", 3000)+"x")
	tests := []struct{ off, line, column int }{
		{0, 1, 1}, {2, 1, 3}, {3, 2, 1}, {4, 2, 2}, {6, 2, 3}, {10, 2, 4}, {13, 3, 1}, {14, 4, 1}, {14 + 6000, 4, 3001}, {-1, 1, 1}, {1 << 30, 4, 3002},
	}
	for _, tt := range tests {
		if line, column := s.Position(tt.off); line != tt.line || column != tt.column {
			t.Errorf("Position(%d) = %d:%d, want %d:%d", tt.off, line, column, tt.line, tt.column)
		}
	}
}

func TestReporterKeepsEverythingInOrder(t *testing.T) {
	src := NewSource("x", strings.Repeat("x", 100))
	r := NewReporter(src, false)
	r.Report(Comment, Place{Start: 50, End: 51}, "", "second")
	r.Report(ByteOrderMark, Place{Start: 2, End: 3}, "do this", "first")
	got := r.Finish()
	if len(got) != 2 || got[0].Message != "first" || got[0].Hint != "do this" || got[1].Hint != Comment.Fix {
		t.Errorf("got %+v", got)
	}
	if got[0].Severity != Warning || got[1].Severity != Error || r.Errors() != 1 {
		t.Errorf("severities are wrong: %+v", got)
	}
}

func TestStrictTurnsWarningsIntoErrors(t *testing.T) {
	r := NewReporter(NewSource("x", "x"), true)
	r.Report(ByteOrderMark, Place{}, "", "a warning")
	if got := r.Finish(); r.Errors() != 1 || got[0].Severity != Error {
		t.Errorf("got %+v", got)
	}
}

func TestTooManyProblemsAreCounted(t *testing.T) {
	r := NewReporter(NewSource("x", strings.Repeat("x", 20_000)), false)
	for i := range 15_000 {
		r.Report(Comment, Place{Start: i, End: i + 1}, "", "problem")
	}
	got := r.Finish()
	if len(got) != maxDiagnostics+1 || got[maxDiagnostics].Code != TooMany.Code || !strings.Contains(got[maxDiagnostics].Message, "5000") {
		t.Errorf("got %d diagnostics and the last one %+v, want a last diagnostic that counts the rest",
			len(got), got[len(got)-1])
	}
	if r.Errors() != 15_000 {
		t.Errorf("Errors() = %d, want 15000", r.Errors())
	}
}

func frame(t *testing.T, text string, start, end int, masks ...[2]int) Frame {
	t.Helper()
	src := NewSource("x", text)
	for _, m := range masks {
		src.Mask(m[0], m[1])
	}
	r := NewReporter(src, false)
	r.Report(Comment, Place{Start: start, End: end}, "", "x")
	return src.Frame(r.Finish()[0])
}

func TestFrame(t *testing.T) {
	secret := "hunter2hunter2"
	line := `  "a": "` + secret + `", "b": 1`
	at := strings.Index(line, secret)
	tests := []struct {
		name  string
		frame Frame
		want  Frame
	}{
		{"plain", frame(t, "one\n  two three\nfour", 6, 9), Frame{2, "  two three", 2, 3}},
		{"over lines", frame(t, "{\n  \"a\": 1\n}", 0, 12), Frame{1, "{", 0, 1}},
		{"end of file", frame(t, "{", 1, 1), Frame{1, "{", 1, 1}},
		{"carriage return", frame(t, "ab\r\ncd", 0, 1), Frame{1, "ab", 0, 1}},
		{"secret itself", frame(t, line, at, at+len(secret), [2]int{at, at + len(secret)}), Frame{1, `  "a": "••••••", "b": 1`, at, 6}},
		{"secret nearby", frame(t, line, strings.Index(line, `"b"`), strings.Index(line, `"b"`)+3, [2]int{at, at + len(secret)}), Frame{1, `  "a": "••••••", "b": 1`, 17, 3}},
		{"caret inside a secret", frame(t, line, at+3, at+5, [2]int{at, at + len(secret)}), Frame{1, `  "a": "••••••", "b": 1`, at, 6}},
		{"escape sequence", frame(t, "a\x1b[31mb\u202ec", 0, 1), Frame{1, `a\u001b[31mb\u202ec`, 0, 1}},
	}
	for _, tt := range tests {
		if tt.frame != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, tt.frame, tt.want)
		}
		if strings.Contains(tt.frame.Text, "hunter") {
			t.Errorf("%s: the frame shows the secret", tt.name)
		}
	}
}

// Frame also shows text that was not parsed, such as comments. It masks the secrets in such text.
func TestFrameMasksUnparsedSecrets(t *testing.T) {
	token := "ghp" + "_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
	for _, text := range []string{"// " + token, token, "x " + token + " y " + token, strings.Repeat("é", 300) + token + strings.Repeat("x ", 300)} {
		for _, at := range []int{0, strings.Index(text, token), strings.Index(text, token) + 30, len(text) - 1} {
			if f := frame(t, text, at, at+1); strings.Contains(f.Text, "N4o5P6") {
				t.Errorf("the frame at offset %d shows the secret: %q", at, f.Text)
			}
		}
	}
}

func TestFrameOfALongLine(t *testing.T) {
	text := strings.Repeat("é", 1<<20) + "HERE" + strings.Repeat("x", 1<<20)
	at := strings.Index(text, "HERE")
	f := frame(t, text, at, at+4)
	if n := len([]rune(f.Text)); n > 3*frameWidth || !strings.Contains(f.Text, "HERE") {
		t.Errorf("the frame has %d characters, want a short frame with HERE: %q", n, f.Text)
	}
	if got := string([]rune(f.Text)[f.Before : f.Before+f.Marked]); got != "HERE" {
		t.Errorf("the caret is under %q, want HERE", got)
	}
}

func TestQuote(t *testing.T) {
	token := "ghp" + "_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
	tests := []struct{ in, want string }{
		{"plain", `"plain"`},
		{"", `""`},
		{"a\x1b[2Jb", `"a\u001b[2Jb"`},
		{"x" + token, `"x` + token + `"`},
		{token, `"••••••"`},
		{strings.Repeat("é", 100), `"` + strings.Repeat("é", 30) + `…"`},
	}
	for _, tt := range tests {
		if got := Quote(tt.in); got != tt.want {
			t.Errorf("Quote(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestClosest(t *testing.T) {
	words := []string{"servers", "transport", "allowed_side_effects", "agent", "tools"}
	tests := []struct{ in, want string }{
		{"server", "servers"},
		{"sevrers", "servers"},
		{"transprot", "transport"},
		{"allowedSideEffects", "allowed_side_effects"},
		{"Agent", "agent"},
		{"tool", "tools"},
		{"completely", ""},
		{"", ""},
		{"x", ""},
		{"servers", ""},
	}
	for _, tt := range tests {
		if got := Closest(tt.in, words); got != tt.want {
			t.Errorf("Closest(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	if got := Closest("page", []string{"range"}); got != "" {
		t.Errorf("Closest(page, [range]) = %q, want none: a short word allows only one edit", got)
	}
}

func TestEverySharedRuleIsExplained(t *testing.T) {
	for _, r := range Shared {
		if r.Code == "" || r.Title == "" || r.Why == "" {
			t.Errorf("the rule %+v has no code, title or reason", r)
		}
	}
}

// Printable must return one line without invisible characters for every text.
func FuzzPrintable(f *testing.F) {
	for _, s := range []string{
		"plain", "a\x1b[2J\n\tb", "\u202eturned", "fill\u3164ed \u034f\u115f\u2800", "a\u00ad\u200db", "\U000e0041", "\xe1\x84", "é\u200dé", "👩\u200d🔬\ufe0f",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := Printable(s)
		if what := Hidden(shown); what != "" || strings.ContainsAny(shown, "\r\n\t") {
			t.Errorf("Printable(%q) = %q, which contains %s", s, shown, what)
		}
	})
}
