package cli

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// Column names and a hint are printed only on a terminal.
func TestJournalHeader(t *testing.T) {
	entry := journal.Entry{Record: journal.Record{Agent: "counter", Tool: "count", Decision: journal.Allow}}
	for terminalOut, want := range map[bool]string{true: "SEQ", false: "0"} {
		var b, notes bytes.Buffer
		term := &terminal{out: bufio.NewWriter(&b), err: &notes, width: 100, cut: terminalOut}
		term.printRecords([]journal.Entry{entry}, true)
		if err := term.flush(); err != nil {
			t.Fatal(err)
		}
		if first := strings.Fields(b.String())[0]; first != want {
			t.Errorf("with stdout on a terminal = %t, the output begins with %s, want %s", terminalOut, first, want)
		}
		if hinted := strings.Contains(notes.String(), "journal show --call ID"); hinted != terminalOut {
			t.Errorf("with stdout on a terminal = %t, stderr is %q; want a hint only on a terminal",
				terminalOut, notes.String())
		}
	}
}

// The record of a person's decision looks different from the record of the call.
func TestJournalShowsDecisionsOfPeople(t *testing.T) {
	var b bytes.Buffer
	term := &terminal{out: bufio.NewWriter(&b), width: 100}
	term.printRecords([]journal.Entry{
		{Record: journal.Record{Seq: 1, Tool: "pay", Decision: journal.Deny, Stage: "approve", Code: "approval_denied"}},
		{Record: journal.Record{Tool: "pay", Decision: journal.Deny, Stage: "approve"}},
	}, true)
	if err := term.flush(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(b.String(), "\n"); !strings.HasSuffix(lines[0], "approval_denied") || !strings.HasSuffix(lines[1], "decided by a person") {
		t.Errorf("got the lines %q, want a marked line for the person's decision", lines)
	}
}

// The record of a call shows which hosts the server contacted and which operations its sandbox refused.
func TestJournalShowsWhatWasRefused(t *testing.T) {
	var b bytes.Buffer
	term := &terminal{out: bufio.NewWriter(&b), width: 300}
	term.printRecords([]journal.Entry{{Record: journal.Record{
		Tool: "pay", Decision: journal.Allow, ToolError: true, Contacted: []string{"a.test:443", "b.test:80"}, Omitted: 2,
		Refused: []journal.Denial{{Kind: "connect", What: "c.test:443"}, {Kind: "execute", What: "/bin/\x1b"}},
	}}}, true)
	if err := term.flush(); err != nil {
		t.Fatal(err)
	}
	const want = "the tool reported an error; contacted a.test:443, b.test:80; " +
		`the server was not allowed to: connect c.test:443, execute /bin/\u001b; and 2 more`
	if got := strings.TrimSpace(b.String()); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The list of agents shows which operations the sandboxes of their servers refused, and the command that allows these
// operations.
func TestAgentsShowsDenials(t *testing.T) {
	var b bytes.Buffer
	term := &terminal{out: bufio.NewWriter(&b), width: 300}
	term.printDenials([]daemon.Card{{Name: "desk", Refused: []toolserver.Denial{
		{Server: "web", Right: agent.Right{Kind: agent.CanConnect, What: "a.test:443"}, Count: 2, Allow: "ambit allow …"},
		{Server: "web", Right: agent.Right{Kind: agent.CanExecute, What: "x\x1b"}, Count: 1},
	}}})
	if err := term.flush(); err != nil {
		t.Fatal(err)
	}
	const want = "desk: the sandbox of server web refused: connect a.test:443, 2 times\n" +
		"  to allow it, run: ambit allow …\n" +
		"desk: the sandbox of server web refused: execute x\\u001b, 1 time\n"
	if got := b.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
