package console

import (
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/journal"
)

func TestSentence(t *testing.T) {
	names := map[string]string{"key:abc": "ci"}
	for name, tt := range map[string]struct {
		entry journal.Entry
		want  string
	}{
		"a call":         {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "read", Agent: "desk", Decision: journal.Allow}}, "ann called read of desk"},
		"a named key":    {journal.Entry{Record: journal.Record{Principal: "key:abc", Tool: "read", Agent: "desk", Decision: journal.Allow}}, "key ci called read of desk"},
		"a refusal":      {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "read", Agent: "desk", Decision: journal.Deny, Stage: "gate", Code: "policy_denied"}}, "ann was refused read of desk"},
		"no answer":      {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "pay", Agent: "desk", Decision: journal.Deny, Stage: "approve", Code: "approval_denied"}}, "ann was refused pay of desk"},
		"an approval":    {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "pay", Agent: "desk", Decision: journal.Allow, Stage: "approve"}}, "ann approved a call to pay of desk"},
		"a denial":       {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "pay", Agent: "desk", Decision: journal.Deny, Stage: "approve"}}, "ann denied a call to pay of desk"},
		"an unknown":     {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "pay", Agent: "desk", Decision: journal.Unknown}}, "ann called pay of desk; the outcome is unknown"},
		"a tool's error": {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "pay", Agent: "desk", Decision: journal.Allow, ToolError: true}}, "ann called pay of desk; the tool reported an error"},
		"a failure":      {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "pay", Agent: "desk", Decision: journal.Failed, Stage: "act", Code: "program_failed"}}, "ann called pay of desk; the call failed"},
		"a change":       {journal.Entry{Record: journal.Record{Principal: "ann", Tool: "key new", Decision: journal.Allow, Stage: "key"}}, "ann ran key new"},
		"an erasure":     {journal.Entry{Record: journal.Record{Kind: "log_erased"}}, "Old records were erased."},
		"erased":         {journal.Entry{Erased: true}, "The content of this record was erased; only its hash remains."},
	} {
		r := sentence(tt.entry, names, "/")
		if got := r.Text(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestByDay checks that an erased record, which has no time, does not begin a new day.
func TestByDay(t *testing.T) {
	at := func(text string) journal.Entry {
		moment, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return journal.Entry{Record: journal.Record{Time: moment}}
	}
	days := byDay([]journal.Entry{at("2026-03-04T01:00:00+02:00"), at("2026-03-03T05:00:00Z"), {Erased: true}, at("2026-03-01T05:00:00Z")}, nil, "/")
	if len(days) != 2 || len(days[0].Records) != 3 || len(days[1].Records) != 1 || days[0].Date.Day() != 3 {
		t.Errorf("the days are %+v", days)
	}
}

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
		cut  bool
	}{
		{"abc", 3, "abc", false}, {"abcd", 3, "abc…", true}, {`""`, 9, `"…`, true}, {"äö", 3, "ä…", true}, {"", 0, "", false},
	} {
		if got, cut := fit(tt.text, tt.n); got != tt.want || cut != tt.cut {
			t.Errorf("fit(%q, %d) = %q, %v", tt.text, tt.n, got, cut)
		}
	}
}

func TestEnds(t *testing.T) {
	if got := endsText(endsOf("3.5,0.17")); got != "0.17,3.5" {
		t.Errorf("got %s", got)
	}
	for _, text := range []string{"", "x", "1", "1.x", "1.2,"} {
		if got := endsOf(text); got != nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
