package toolserver

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestEnvironmentStaysInside: what a manifest sets is the server's alone. What
// contains the server does not have it, neither as its environment, where it
// could make it load or run something, nor among its arguments.
func TestEnvironmentStaysInside(t *testing.T) {
	if !contained(t) {
		if os.Getenv("CI") == "true" {
			t.Fatal("tool servers are not contained here")
		}
		t.Skip("tool servers are not contained here")
	}
	const secret = "canary-5e1f"
	p := shell(t, `echo "$TOKEN|$EMPTY|${EMPTY-unset}|$LD_LIBRARY_PATH|$BASH_ENV|$(env | sort | cut -d= -f1 | tr '\n' ' ')"; read x`, func(s *spec) {
		s.env = append(s.env, "TOKEN="+secret+"=x y", "EMPTY=", "LD_LIBRARY_PATH=/none", "BASH_ENV=/none")
	})
	if got, want := line(t, bufio.NewReader(p.stdout)), secret+"=x y|||/none|/none|BASH_ENV EMPTY LD_LIBRARY_PATH PATH PWD TOKEN"; got != want {
		t.Errorf("the server has %q", got)
	}
	for _, name := range []string{"environ", "cmdline"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "environ" && len(text) > 0 || strings.Contains(string(text), secret) {
			t.Errorf("%s of what contains it is %q", name, text)
		}
	}
	// Inside, the first process is bubblewrap's too.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.initPID))
	if err != nil || strings.Contains(string(text), secret) {
		t.Errorf("%q, %v", text, err)
	}
}
