package cli

import (
	"bytes"
	"strings"
	"testing"
)

// The progress line counts the servers that are done and names the current step. It is removed before other output
// and when all servers are done.
func TestBar(t *testing.T) {
	var screen bytes.Buffer
	term := newTerminal(strings.NewReader(""), &screen, &screen)
	term.bar = &bar{out: &screen, width: 60, paint: func(_ style, s string) string { return s }}
	shown := func() string { defer screen.Reset(); return screen.String() }

	term.bar.step("fs", "downloading some-package@1.2.3")
	if got, want := shown(), "0 of 1 server  fs: downloading some-package@1.2.3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	term.bar.step("memory", "starting")
	if got := shown(); !strings.HasPrefix(got, "\r\x1b[K0 of 2 servers") {
		t.Errorf("got %q", got)
	}
	term.notef("a line")
	if got := shown(); got != "\r\x1b[Ka line\n" {
		t.Errorf("the note is written as %q, want it after the code that clears the progress line", got)
	}
	term.bar.step("memory", "ready")
	if got := shown(); !strings.Contains(got, "1 of 2 servers  memory: ready") {
		t.Errorf("got %q", got)
	}
	term.bar.step("fs", "refused")
	if got := shown(); got != "\r\x1b[K" {
		t.Errorf("after the last step, got %q, want only the code that clears the line", got)
	}
	term.bar.step("fs", "starting\x1b[2J")
	if got := shown(); strings.Contains(got, "\x1b[2J") || !strings.Contains(got, "0 of 1 server ") {
		t.Errorf("got %q", got)
	}
}
