package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/manifest"
)

// crowded is a daemon with large numbers of agents, tools, calls and records.
type crowded struct{ *fakeBackend }

// long is an ordinary text of n characters. Some of the characters need more bytes as markup.
func long(n int) string {
	return strings.Repeat(`It's a "long" text about <one> & the same thing. `, n/48+1)[:n]
}

func times[T any](n int, one func(i int) T) (list []T) {
	for i := range n {
		list = append(list, one(i))
	}
	return list
}

func repeated(n int) []string { return times(n, func(int) string { return long(120) }) }

func crowdedName(i int) string {
	return fmt.Sprintf("%04d-a-name-that-is-used-only-once", i)
}

func (crowded) Cards() []Card {
	return times(1000, func(i int) Card {
		return Card{
			Name: crowdedName(i), Title: crowdedName(i), State: []string{"ready", "failed", "rejected"}[i%3], Error: long(5000),
			Model: &agent.Agent{Description: long(5000), Tools: []agent.Tool{{Name: "x"}}},
		}
	})
}

func (b crowded) Agent(context.Context, string) *Agent {
	fact := func(i int) Fact { return Fact{Label: crowdedName(i), Values: repeated(3)} }
	schema := `{"type":"object","properties":{` + strings.Join(times(maxFields, func(i int) string {
		return fmt.Sprintf(`%q:{"type":"string","description":%q}`, crowdedName(i), long(1000))
	}), ",") + `}}`
	return &Agent{
		Card: Card{
			Name: crowdedName(0), Title: crowdedName(0), State: "ready", Error: long(500),
			Model: &agent.Agent{Description: long(1000)}, Manifest: &manifest.Manifest{Path: "/home/ann/agents/a.json"},
		},
		Inspection: Inspection{
			Facts: times(12, fact), Watch: repeated(500),
			Access: times(6, func(i int) Fact { return Fact{Label: crowdedName(i), Values: repeated(5)} }),
		},
		Tools: times(2000, func(i int) Tool {
			return Tool{Served: crowdedName(i), Callable: true, Tool: agent.Tool{
				Name: crowdedName(i), Description: long(3000), SideEffect: agent.Write, Binding: agent.OnServer{Alias: crowdedName(i % 6)},
				InputSchema: schema,
			}}
		}),
		Servers: times(6, func(i int) toolserver.Proof {
			return toolserver.Proof{Alias: crowdedName(i), OK: true, Warnings: repeated(50), Unexpected: repeated(2)}
		}),
		Slots: times(3, func(i int) Slot {
			return Slot{Reference: credential.Reference{Ref: crowdedName(i)}, Description: long(200)}
		}),
		Guardrails: times(7, func(i int) Fact { return Fact{Label: crowdedName(i), Values: repeated(1)} }),
	}
}

func (crowded) Call(context.Context, string, *call.Call) (call.Result, error) {
	text, err := json.Marshal(long(100_000))
	item := `{"type":"text","text":` + string(text) + `}`
	return call.Result{Raw: []byte(`{"content":[` + item + `,` + item + `],"structuredContent":{"a":` + string(text) + `}}`)}, err
}

func question(i int) *approval.Question {
	text, _ := json.Marshal(map[string]string{"text": long(50_000)})
	return &approval.Question{ID: fmt.Sprint(i), Agent: crowdedName(0), Tool: crowdedName(0), Principal: "key:abc", Arguments: text}
}

func (crowded) List(context.Context) ([]*approval.Question, error) { return times(30, question), nil }

func (crowded) Look(context.Context, string) (*approval.Question, error) {
	q := question(1)
	q.State, q.Decider = approval.Approved, ada.Name
	return q, nil
}

func (crowded) KeyNames(context.Context) (map[string]string, error) {
	return map[string]string{"key:abc": "the key of the build machine"}, nil
}

func crowdedRecord(i int) journal.Entry {
	return journal.Entry{Record: journal.Record{
		Seq: int64(i), Time: time.Now().Add(-time.Duration(i) * time.Hour), Agent: crowdedName(0), Tool: crowdedName(1), Principal: "key:abc",
		Decision: journal.Deny, Code: "input_invalid", Detail: long(3000), DurationUS: 123456789,
	}}
}

func (crowded) Show(_ context.Context, f journal.Filter) ([]journal.Entry, error) {
	return times(min(f.Limit, 200), crowdedRecord), nil
}

func (crowded) Ends(context.Context) (journal.Ends, error) { return journal.Ends{0: 1 << 40}, nil }

func (crowded) Follow(ctx context.Context, _ journal.Ends, _ journal.Filter, _ func(journal.Entry) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (crowded) Prove(context.Context, int64, int64) (*journal.Proof, error) {
	e := crowdedRecord(1)
	e.Arguments, _ = json.Marshal(map[string]string{"text": long(50_000)})
	raw, err := json.Marshal(e.Record)
	text := string(raw)
	return &journal.Proof{Record: &text}, err
}

func (crowded) Intents(context.Context) ([]*dispatch.Intent, error) {
	return times(100, func(int) *dispatch.Intent {
		return &dispatch.Intent{Name: crowdedName(0), Principal: crowdedName(1), Asked: time.Now()}
	}), nil
}

func (crowded) Policy() (string, string, string) {
	return "policy.cedar", strings.Repeat(long(79)+"\n", 5000), long(500)
}

func (crowded) SpentToday(context.Context) ([]limit.Spent, error) {
	return times(500, func(i int) limit.Spent {
		return limit.Spent{Agent: crowdedName(0), Tool: crowdedName(i), Amount: "1234.50"}
	}), nil
}

func (crowded) Why(context.Context, string, *call.Call) (*Verdict, error) {
	reasons := times(10, func(int) call.Reason { return call.Reason{Stage: "gate", Detail: long(400), Hint: long(200)} })
	return &Verdict{Summary: "no", Class: "deny", Reasons: reasons}, nil
}

// TestPagesAreSmall checks that every page has less than 50 KB, even if there is much to show.
func TestPagesAreSmall(t *testing.T) {
	withConsole(t, func(t *testing.T, b *fakeBackend, c *Console) {
		many := crowded{b}
		c.o.Backend, c.o.Approvals, c.o.Journal = many, many, many
		person := c.signIn(t, c.Link(ada))
		agent, tool := url.PathEscape(crowdedName(0)), url.PathEscape(crowdedName(1))
		for path, want := range map[string]string{
			"":                                   "1,000 agents",
			"?from=30":                           "from=60",
			"?q=0777":                            crowdedName(777),
			"?q=nothing":                         "No agent has “nothing” in its name",
			"agents/" + agent:                    "More tools",
			"agents/" + agent + "?from=1980":     crowdedName(1999),
			"agents/" + agent + "/tools/" + tool: `id="arg-`,
			"approvals":                          "More waiting calls",
			"approvals?decided=1":                "You <strong>approved",
			"approvals/7":                        "does not show all arguments",
			"journal":                            "Older records",
			"journal/0/1":                        "was refused",
			"activity?period=7d":                 "last 7 days",
			"queue":                              crowdedName(1),
			"policy?agent=" + agent + "&tool=" + tool: "does not show the whole file",
		} {
			w := c.ask(t, "GET", person.base+path, person.cookie, nil)
			if page := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(page, want) {
				t.Errorf("%s: status %d, without %q: %.2000s", path, w.Code, want, page)
			} else if t.Logf("%s has %d bytes", path, len(page)); len(page) > 50_000 {
				t.Errorf("%s has %d bytes", path, len(page))
			}
		}
		// The page also shows the result of a call, below the form.
		w := c.ask(t, "POST", person.base+"agents/"+agent+"/call", person.cookie, url.Values{"token": {person.token}, "tool": {crowdedName(1)}})
		if page := w.Body.String(); !strings.Contains(page, "does not show the whole result") || len(page) > 50_000 {
			t.Errorf("the result has %d bytes", len(page))
		}
	})
}
