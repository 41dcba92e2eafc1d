package mcpwire

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

const content = "the content of a message"

func crash() { panic("cannot handle " + content) }

// crashing returns options whose callbacks panic, and the descriptions of the panics.
func crashing() (o Options, panics *diary) {
	panics = &diary{}
	return Options{
		OnNotification: func(Notification) { crash() },
		OnRequest: func(context.Context, string, jsontext.Value) (jsontext.Value, error) {
			crash()
			return nil, nil
		},
		OnNoise: func([]byte) { crash() },
		OnPanic: panics.write,
	}, panics
}

// described checks that one panic was described by its place, without its value.
func described(t *testing.T, panics *diary) {
	t.Helper()
	panics.mu.Lock()
	defer panics.mu.Unlock()
	if len(panics.entries) != 1 || !strings.Contains(panics.entries[0], "mcpwire.crash(") || strings.Contains(panics.entries[0], content) {
		t.Errorf("the panics are described as %q", panics.entries)
	}
}

// A panic while a message is handled closes only the connection, and every waiting call fails.
func TestPanicClosesTheConnection(t *testing.T) {
	for name, line := range map[string]string{
		"a notification":  `{"jsonrpc":"2.0","method":"notifications/x"}`,
		"a request":       `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`,
		"noise":           `starting`,
		"an empty object": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			o, panics := crashing()
			play(t, o, legacy(func(f *fake) {
				f.recv()
				f.say(line)
				f.idle()
			}), func(t *testing.T, c *Conn) {
				negotiate(t, c)
				_, err := callTool(t, c, "echo", `{}`)
				wantError(t, err, ErrClosed, errPanic)
				wantError(t, c.Err(), errPanic)
				described(t, panics)
			})
		})
	}
}

func TestPanicOverHTTP(t *testing.T) {
	noLeaks(t)
	s := newWeb(t)
	s.call = func(w http.ResponseWriter, r *http.Request, _ message) {
		stream(w)("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
		<-r.Context().Done()
	}
	o, panics := crashing()
	c := s.connect(o, HTTPOptions{})
	negotiate(t, c)
	_, err := callTool(t, c, "echo", `{}`)
	wantError(t, err, ErrClosed, errPanic)
	described(t, panics)
}
