package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestBar is the line at the foot of a terminal: it grows, names what is done
// now, and is gone before anything else is written and at the end.
func TestBar(t *testing.T) {
	var screen bytes.Buffer
	term := newTerminal(strings.NewReader(""), &screen, &screen)
	term.bar = &bar{out: &screen, width: 60, paint: func(_ style, s string) string { return s }}
	said := func() string { defer screen.Reset(); return screen.String() }

	term.bar.step("fs", "downloading some-package@1.2.3")
	if got, want := said(), "█░░░░░░░░░░░░░░░░░░░ 0 of 1 server  fs: downloading some-p…"; got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	term.bar.step("memory", "starting")
	if got := said(); !strings.HasPrefix(got, "\r\x1b[K████████░░░░░░░░░░░░ 0 of 2 servers") {
		t.Errorf("it shows %q", got)
	}
	term.notef("a line")
	if got := said(); got != "\r\x1b[Ka line\n" {
		t.Errorf("a line is written as %q", got)
	}
	term.bar.step("memory", "ready")
	if got := said(); !strings.Contains(got, "1 of 2 servers  memory: ready") {
		t.Errorf("it shows %q", got)
	}
	term.bar.step("fs", "refused")
	if got := said(); got != "\r\x1b[K" {
		t.Errorf("at the end there is %q", got)
	}
	term.bar.step("fs", "starting\x1b[2J")
	if got := said(); strings.Contains(got, "\x1b[2J") || !strings.Contains(got, "0 of 1 server ") {
		t.Errorf("it shows %q", got)
	}
}
