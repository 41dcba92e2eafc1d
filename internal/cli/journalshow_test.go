package cli

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/journal"
)

// The columns have names and a hint on a terminal only.
func TestJournalHeader(t *testing.T) {
	entry := journal.Entry{Record: journal.Record{Agent: "counter", Tool: "count", Decision: journal.Allow}}
	for watched, want := range map[bool]string{true: "SEQ", false: "0"} {
		var b, notes bytes.Buffer
		term := &terminal{out: bufio.NewWriter(&b), err: &notes, width: 100, cut: watched}
		term.records([]journal.Entry{entry}, true)
		if err := term.flush(); err != nil {
			t.Fatal(err)
		}
		if first := strings.Fields(b.String())[0]; first != want {
			t.Errorf("watched by a person: %v, and it begins with %s", watched, first)
		}
		if told := strings.Contains(notes.String(), "journal show --json --call ID"); told != watched {
			t.Errorf("watched by a person: %v, and it says %q", watched, notes.String())
		}
	}
}

// The answer to an approval differs from the record of the call.
func TestJournalTellsPeoplesAnswers(t *testing.T) {
	var b bytes.Buffer
	term := &terminal{out: bufio.NewWriter(&b), width: 100}
	term.records([]journal.Entry{
		{Record: journal.Record{Seq: 1, Tool: "pay", Decision: journal.Deny, Stage: "approve", Code: "approval_denied"}},
		{Record: journal.Record{Tool: "pay", Decision: journal.Deny, Stage: "approve"}},
	}, true)
	if err := term.flush(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(b.String(), "\n"); !strings.HasSuffix(lines[0], "approval_denied") || !strings.HasSuffix(lines[1], "a person's answer") {
		t.Errorf("it shows %q", lines)
	}
}
