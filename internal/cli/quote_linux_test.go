package cli

import (
	"os/exec"
	"strings"
	"testing"
)

// TestConnectLineIsQuoted runs the command that ambit prints for an agent in a folder with a hostile name. The shell
// must pass the name as one argument, and must not run any part of the name.
func TestConnectLineIsQuoted(t *testing.T) {
	const name = "z$(echo pwned >&2)`echo pwned >&2`'\";echo pwned >&2"
	line := connectLine(name, "http://127.0.0.1:7411/mcp/z$(echo pwned >&2)", "$(echo secret)")
	out, err := exec.Command("/bin/sh", "-c", `claude() { for word; do printf '<%s>\n' "$word"; done; }; `+line).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	want := []string{"<mcp>", "<add>", "<--transport>", "<http>", "<" + name + ">", "<http://127.0.0.1:7411/mcp/z$(echo pwned >&2)>", "<--header>", "<Authorization: Bearer secret>"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got the arguments %q\nwant %q", got, want)
	}
}
