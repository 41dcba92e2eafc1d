package cli

import (
	"os/exec"
	"strings"
	"testing"
)

// TestConnectLineIsQuoted runs the command that is printed for an agent whose folder
// has a hostile name: the shell passes the name on and runs none of it.
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
		t.Errorf("the shell gets %q\nwant %q", got, want)
	}
}
