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
	// lateGrace is how long an answer is waited for after a call's time is over.
	lateGrace = 60 * time.Second
	// longest bounds a manifest's timeout, so that adding to it cannot overflow a time.Duration.
	longest = 100 * 365 * 24 * time.Hour
	// around is the time for making and removing the sandbox of a program, beyond
	// the program's own.
	around = 15 * time.Second
)

// act lets the binding do the work, within the tool's time. A call with effects
// continues when its time is over: the caller gets a refusal, and the answer is
// still awaited.
func act(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	if p.tool.Binding == nil || g.binding == nil {
		r := call.Refuse(stageAct, call.UnknownTool, "%s is described, not served", p.tool.Name)
		r.Unsent = true
		return r
	}
	timeout, c := g.timeout(p), g.guarded(p.Call)
	base, bound := ctx, timeout
	if p.intended {
		base, bound = context.WithoutCancel(ctx), timeout+g.lateGrace
	}
	work, stop := context.WithTimeout(base, bound)
	told := &listener{notify: c.OnNotify}
	if c.OnNotify != nil {
		c.OnNotify = told.hear
	}
	answers := make(chan call.Outcome, 1)
	carryOut := func() {
		defer stop()
		answers <- g.outcome(g.binding.Act(work, p.tool, c))
	}
	if !p.intended {
		carryOut()
		return p.take(<-answers)
	}
	defer context.AfterFunc(ctx, stop)() // a caller that cancels ends the work
	g.late.Go(carryOut)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case o := <-answers:
		return p.take(o)
	case <-timer.C:
		told.leave()
		p.late = answers
		return call.Uncertain(stageAct, call.TimedOut,
			"%s did not answer within %v; whether it was carried out is not known", p.tool.Name, timeout)
	}
}

// outcome is what a binding returned. Its refusals may quote a server, and pass
// the scan too.
func (g *Gateway) outcome(result call.Result, err error) call.Outcome {
	if err == nil {
		return call.Outcome{Result: result}
	}
	return call.Outcome{Result: call.Result{Log: result.Log}, Refusal: g.guards.redact(call.AsRefusal(stageAct, err))}
}

// take makes an outcome that of the call.
func (p *passing) take(o call.Outcome) *call.Refusal {
	p.result = o.Result
	return o.Refusal
}

// timeout is how long a call may take: what the manifest says of the tool, or
// of its program.
func (g *Gateway) timeout(p *passing) time.Duration {
	timeout := defaultTimeout
	_, runs := p.tool.Binding.(agent.RunProgram)
	switch bounds := g.agent.Resources; {
	case p.tool.Timeout > 0:
		timeout = min(p.tool.Timeout, longest)
	case runs && bounds != nil && bounds.WallClock > 0:
		timeout = min(bounds.WallClock, longest) + around
	}
	if p.Timeout > 0 {
		timeout = min(timeout, p.Timeout)
	}
	return timeout
}

// guarded is a copy of a call whose client hears nothing that was not scanned.
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
