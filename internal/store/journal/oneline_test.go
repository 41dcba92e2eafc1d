package journal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Each stored record is one line of valid JSON, like each exported record. So any reader of the store can
// treat a record as a line.
func TestKeptRecordsAreOneLine(t *testing.T) {
	j := open(newJournal(t, 0).db)
	hostile := "a\nb\r\u2028\x1b[31m\x00\"}\n{\"log\":0}"
	records := []*Record{
		{Tool: hostile, Detail: hostile, Agent: hostile, Principal: hostile},
		{Tool: "pretty", Arguments: []byte("{\"a\":\n\r\t1}")},
		{Tool: "broken", Arguments: []byte("{\n\x1b")},
		{Tool: "bytes", Detail: "\xff\xfe\n"},
		{Tool: "long", Detail: strings.Repeat("\n", 10*maxText), Capabilities: &Capabilities{Held: []string{hostile}}},
	}
	for _, r := range records {
		if err := j.Note(r); err != nil {
			t.Fatal(err)
		}
	}
	kept := 0
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		return tx.Query(`SELECT record FROM leaves ORDER BY place`, nil, func(row state.Row) error {
			var text []byte
			if err := row.Scan(&text); err != nil {
				return err
			}
			if len(text) > MaxRecord || bytes.ContainsAny(text, "\n\r\x1b\x00") || !json.Valid(text) {
				t.Errorf("the stored record is not one line of valid JSON: %.200q", text)
			}
			var back struct{ Tool, Detail string }
			if err := json.Unmarshal(text, &back); err == nil && back.Tool == hostile {
				kept++
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if kept != 1 {
		t.Errorf("%d records contain the hostile tool name unchanged, want 1", kept)
	}
}
