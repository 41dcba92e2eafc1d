package toolserver

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// errPanic is the error for a server whose handling ended with a panic.
var errPanic = errors.New("ambit itself failed while it handled the server")

// contain recovers a panic, logs its stack, and sets *err if err is not nil. A defect that one server triggers must not
// end the other servers. Goroutines that handle the content of servers must defer contain.
func (s *server) contain(err *error) {
	if value := recover(); value != nil {
		s.warn("ambit failed while it handled the server: " + diag.Panic(value))
		if err != nil {
			*err = errPanic
		}
	}
}

// run runs the given function, which supervises the server until its end. If the function panics, run stops the server.
// Calls are then refused until the agent is restarted.
func (s *server) run(supervise func()) {
	defer s.finish()
	defer s.contain(nil)
	var err error
	func() {
		defer s.contain(&err)
		supervise()
	}()
	if err != nil {
		why := call.Refuse(stage, call.ServerUnavailable, "server %s was stopped: %v", s.alias, err)
		why.Hint = "this is a defect of ambit; its log contains the details; to start the server, restart the agent"
		s.retire(why)
	}
}

// try calls the given function and returns a panic as an error.
func (s *server) try(
	ctx context.Context, ask func(context.Context) (jsontext.Value, error),
) (answer jsontext.Value, err error) {
	defer s.contain(&err)
	return ask(ctx)
}

// publish passes the verified definitions of the server's tools to Options.OnProven.
func (s *server) publish(p *Proof) (err error) {
	defer s.contain(&err)
	s.options.OnProven(s.alias, p.Tools)
	return nil
}
