package console

import (
	"context"
	"html/template"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/approval"
)

// TestWaitingCalls checks that the page shows exactly the call that a person approves. Hidden characters are visible,
// and large arguments do not make the page large.
func TestWaitingCalls(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 96) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", 96)
	shown := func(arguments string, n int) waitingCall {
		return newWaitingCall(&approval.Question{Arguments: []byte(arguments)}, n)
	}
	for _, arguments := range []string{`{"account":"12\u202e34"}`, "{\"account\":\"12\u202e34\"}"} {
		if text := shown(arguments, maxFirst).Shown; strings.ContainsRune(text, 0x202e) || !strings.Contains(text, `12\u202e34`) {
			t.Errorf("the page shows %q", text)
		}
	}
	small := shown(`{"a":{"b":1}}`, maxFirst)
	if small.Shown != "{\n  \"a\": {\n    \"b\": 1\n  }\n}" || small.Cut || len(small.LookAlikes) != 0 {
		t.Errorf("got %+v", small)
	}
	for _, n := range []int{maxFirst, maxAll} {
		got := shown(deep, n)
		if size := len(template.HTMLEscapeString(got.Shown)); size > n+len("…") || size < n/2 || !got.Cut || got.Size() != len(deep) {
			t.Errorf("the page shows %d of %d bytes, cut: %v", size, n, got.Cut)
		}
	}
	if l := shown("{\"to\":\"p\u0430ypal\"}", maxFirst).LookAlikes; len(l) != 1 || !strings.Contains(l[0], "looks like \"paypal\"") {
		t.Errorf("the marked look-alikes are %v", l)
	}
}

// A call whose arguments do not all fit on the page cannot be approved there, because the rest could change what it
// does.
func TestUnseenArgumentsAreNotApproved(t *testing.T) {
	withConsole(t, func(t *testing.T, b *fakeBackend, c *Console) {
		list := &waitingList{arguments: `{"text":"` + strings.Repeat("x", maxFirst) + `","to":"someone"}`}
		c.o.Approvals = list
		person := c.signIn(t, c.Link(ada))
		approvable := func(path string) bool {
			page := c.ask(t, "GET", person.base+path, person.cookie, nil).Body.String()
			if !strings.Contains(page, `value="deny"`) {
				t.Errorf("%s does not show the call: %.500s", path, page)
			}
			return strings.Contains(page, `value="approve"`)
		}
		if approvable("approvals") || !approvable("approvals/1") {
			t.Error("the list has a button to approve the long call, or the call's own page has none")
		}
		list.arguments = `{"text":"` + strings.Repeat("x", maxAll) + `","to":"someone"}`
		if approvable("approvals/1") {
			t.Error("the call can be approved on a page that does not show all arguments")
		}
		list.arguments = `{"to":"someone"}`
		if !approvable("approvals") {
			t.Error("a short call cannot be approved on the list")
		}
	})
}

// waitingList contains one call.
type waitingList struct {
	crowded
	arguments string
}

func (w *waitingList) List(context.Context) ([]*approval.Question, error) {
	return []*approval.Question{{ID: "1", Tool: "send", Arguments: []byte(w.arguments)}}, nil
}
