package cli

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

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
			t.Errorf("terminal %t: the output begins with %s, want %s", terminalOut, first, want)
		}
		if hinted := strings.Contains(notes.String(), "journal show --json --call ID"); hinted != terminalOut {
			t.Errorf("terminal %t: stderr is %q", terminalOut, notes.String())
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
		t.Errorf("got the lines %q", lines)
	}
}
