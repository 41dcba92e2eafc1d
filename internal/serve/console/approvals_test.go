package console

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/approval"
)

// TestWaitingCalls: a person sees what they approve. Hidden characters are visible, and large arguments do not make the
// page large.
func TestWaitingCalls(t *testing.T) {
	question := func(arguments string) *approval.Question { return &approval.Question{Arguments: []byte(arguments)} }
	deep := strings.Repeat(`{"a":`, 96) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", 96)
	got := waitingCalls([]*approval.Question{
		question(`{"account":"12\u202e34"}`), question("{\"account\":\"12\u202e34\"}"), question(`{"a":{"b":1}}`), question(deep),
		question("{\"to\":\"p\u0430ypal\"}"),
	})
	if text := got[1].First; strings.ContainsRune(text, 0x202e) || !strings.Contains(text, `12\u202e34`) {
		t.Errorf("the page shows %q", text)
	}
	if got[2].First != "{\n  \"a\": {\n    \"b\": 1\n  }\n}" || got[2].All != "" || got[2].Cut {
		t.Errorf("got %+v", got[2])
	}
	if len(got[3].First) != maxFirst || len(got[3].All) != maxAll || !got[3].Cut || got[3].Size != len(deep) {
		t.Errorf("%d and %d bytes are shown, cut: %v", len(got[3].First), len(got[3].All), got[3].Cut)
	}
	if l := got[4].LookAlikes; len(l) != 1 || l[0].Reads != "paypal" || len(got[2].LookAlikes) != 0 {
		t.Errorf("the marked look-alikes are %v and %v", l, got[2].LookAlikes)
	}
	var many []*approval.Question
	for range 500 {
		many = append(many, question(deep))
	}
	total := 0
	for _, c := range waitingCalls(many) {
		total += len(c.First) + len(c.All)
	}
	if total > 2*maxPage {
		t.Errorf("the page has %d bytes of arguments", total)
	}
}
