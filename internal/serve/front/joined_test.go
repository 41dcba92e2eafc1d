package front

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// join connects another client to the agent of a client, as a daemon does for "ambit run".
func (c *client) join() *client {
	c.t.Helper()
	other := &client{t: c.t, stage: c.stage, agent: c.agent, ended: make(chan error, 1)}
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	var ctx context.Context
	ctx, other.stop = context.WithCancel(c.t.Context())
	other.in, other.out = toIn, bufio.NewReader(fromOut)
	go func() {
		other.ended <- ServeJoined(ctx, c.agent, "me@local", in, out)
		out.Close()
	}()
	return other
}

// Several clients share an agent. Each one gets its own answers and questions. The id of a question tells the sessions
// apart, so an answer that arrives late at another session of the same client answers nothing.
func TestJoinedClients(t *testing.T) {
	c := connect(t, func(a *Agent) { a.Keys = testKeys })
	c.stage.asks = `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"sure?"}}},"requestState":"x"}`
	ids := map[string]bool{}
	var clients []*client
	question := regexp.MustCompile(`"id":("ambit-[^"]+-1"),"method":"elicitation/create"`)
	for range 2 {
		j := c.join()
		j.say(hello)
		j.hear()
		j.say(calls(2, "ask", `{}`))
		got := question.FindStringSubmatch(j.hear())
		if got == nil || ids[got[1]] {
			t.Fatalf("the question has the id %q", got)
		}
		ids[got[1]] = true
		clients = append(clients, j)
	}
	c.stage.asks = `{"content":[]}`
	for id := range ids {
		for _, j := range clients {
			j.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept"}}`)
		}
	}
	for _, j := range clients {
		j.wants(`{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)
		j.in.Close()
		if err := <-j.ended; err != nil {
			t.Error(err)
		}
	}
	c.in.Close()
	<-c.ended
}

func TestUnanswered(t *testing.T) {
	r := call.Refuse("act", call.OutcomeUnknown, "it is gone")
	r.Hint = "look"
	for line, want := range map[string]string{
		calls(2, "ask", `{}`):                              `{"jsonrpc":"2.0","id":2,"result":{"_meta":{"ambit/error":{"code":"outcome_unknown","hint":"look","message":"it is gone","retryable":false}},"content":[{"text":"outcome_unknown: it is gone (look)","type":"text"}],"isError":true}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`: `{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"outcome_unknown: it is gone (look)","data":{"error":{"code":"outcome_unknown","hint":"look","message":"it is gone","retryable":false}}}}`,
	} {
		m, problem := mcpwire.ReadMessage([]byte(line))
		if problem != "" {
			t.Fatal(problem)
		}
		if got := string(NewUnanswered(m).Answer(r)); got != want+"\n" {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	newer := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	m, _ := mcpwire.ReadMessage([]byte(newer))
	if got := string(NewUnanswered(m).Answer(r)); !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("in the newer protocol, got %s", got)
	}
}
