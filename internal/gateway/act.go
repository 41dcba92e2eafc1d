package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

const (
	stageAct       = "act"
	defaultTimeout = 30 * time.Second
	// lateGrace is how long the gateway waits for an answer after a call's timeout.
	lateGrace = 60 * time.Second
	// longest bounds a manifest's timeout, so that adding to it cannot overflow a time.Duration.
	longest = 100 * 365 * 24 * time.Hour
	// sandboxTime is the time to create and remove the sandbox of a program.
	sandboxTime = 15 * time.Second
)

// act carries out the call, within the tool's timeout. A call with effects continues
// after the timeout: the caller gets a refusal, and the gateway still waits for the
// answer.
func act(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if p.tool.Binding == nil || g.binding == nil {
		r := call.Refuse(stageAct, call.UnknownTool, "%s is declared but not served", p.tool.Name)
		r.Unsent = true
		return r
	}
	timeout, c := g.timeout(p), g.guarded(p.Call)
	base, bound := ctx, timeout
	if p.intended {
		base, bound = context.WithoutCancel(ctx), timeout+g.lateGrace
	}
	work, stop := context.WithTimeout(base, bound)
	heard := &listener{notify: c.OnNotify}
	if c.OnNotify != nil {
		c.OnNotify = heard.hear
	}
	answers := make(chan call.Outcome, 1)
	carryOut := func() {
		defer stop()
		answers <- g.outcome(g.binding.Act(work, p.tool, c))
	}
	if !p.intended {
		carryOut()
		return p.finish(<-answers)
	}
	defer context.AfterFunc(ctx, stop)() // a caller that cancels ends the work
	g.late.Go(carryOut)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case o := <-answers:
		return p.finish(o)
	case <-timer.C:
		heard.leave()
		p.late = answers
		return call.Uncertain(stageAct, call.TimedOut,
			"%s did not answer within %v; whether it was carried out is unknown", p.tool.Name, timeout)
	}
}

// outcome returns the result of a binding. Its refusals may quote a server, so they are
// scanned for secrets too.
func (g *Gateway) outcome(result call.Result, err error) call.Outcome {
	if err == nil {
		return call.Outcome{Result: result}
	}
	return call.Outcome{Result: call.Result{Log: result.Log}, Refusal: g.guards.redact(call.AsRefusal(stageAct, err))}
}

// finish sets the result of the call.
func (p *inflight) finish(o call.Outcome) *call.Refusal {
	p.result = o.Result
	return o.Refusal
}

// timeout returns the timeout of a call, from the tool or its program in the manifest.
func (g *Gateway) timeout(p *inflight) time.Duration {
	timeout := defaultTimeout
	_, runs := p.tool.Binding.(agent.RunProgram)
	switch bounds := g.agent.Resources; {
	case p.tool.Timeout > 0:
		timeout = min(p.tool.Timeout, longest)
	case runs && bounds != nil && bounds.WallClock > 0:
		timeout = min(bounds.WallClock, longest) + sandboxTime
	}
	if p.Timeout > 0 {
		timeout = min(timeout, p.Timeout)
	}
	return timeout
}

// guarded returns a copy of a call whose messages to the client are scanned.
func (g *Gateway) guarded(c *call.Call) *call.Call {
	copied := *c
	copied.OnNotify, copied.Client = g.guards.hear(c.OnNotify), g.guards.client(c.Client)
	return &copied
}

// listener passes notifications on until the caller has its answer.
type listener struct {
	mu     sync.Mutex
	notify func(string, jsontext.Value)
}

func (l *listener) hear(method string, params jsontext.Value) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notify != nil {
		l.notify(method, params)
	}
}

func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify = nil
}
