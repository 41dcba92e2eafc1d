package cli

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/journal"
)

// The columns have names for people; what a program reads has none.
func TestJournalHeader(t *testing.T) {
	entry := journal.Entry{Record: journal.Record{Agent: "counter", Tool: "count", Decision: journal.Allow}}
	for watched, want := range map[bool]string{true: "SEQ", false: "0"} {
		var b bytes.Buffer
		term := &terminal{out: bufio.NewWriter(&b), width: 100, cut: watched}
		term.records([]journal.Entry{entry}, true)
		if err := term.flush(); err != nil {
			t.Fatal(err)
		}
		if first := strings.Fields(b.String())[0]; first != want {
			t.Errorf("watched by a person: %v, and it begins with %s", watched, first)
		}
	}
}
