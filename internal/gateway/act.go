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
	// lateGrace is how long the gateway waits for an answer after it has refused the call with a timeout.
	lateGrace = 60 * time.Second
	// maxTimeout is the longest timeout that a manifest can set. It is small enough that sums of timeouts cannot
	// overflow time.Duration.
	maxTimeout = 100 * 365 * 24 * time.Hour
	// sandboxTime is added to a program's timeout, because creating and removing a sandbox takes time.
	sandboxTime = 15 * time.Second
)

// act carries out the call within the tool's timeout. If the call has an intent (a row written before sending), act
// does not stop the tool at the timeout. Instead, the caller gets a refusal, and the gateway waits up to lateGrace for
// the tool's answer.
func act(g *Gateway, ctx context.Context, p *inflight) *call.Refusal {
	if p.tool.Binding == nil || g.options.Binding == nil {
		r := call.Refuse(stageAct, call.UnknownTool,
			"the manifest declares the tool %s, but no server or program provides it", p.tool.Name)
		r.Unsent = true
		return r
	}
	timeout, c := g.timeout(p), g.guarded(ctx, p)
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
	effect := call.NoEffect
	if p.intended {
		effect = call.EffectUnknown
	}
	carryOut := func() {
		defer stop()
		defer g.contain(func() { answers <- call.Outcome{Refusal: broken(stageAct, effect)} })
		answers <- g.outcome(g.options.Binding.Act(work, p.tool, c))
	}
	if !p.intended {
		carryOut()
		return p.finish(<-answers)
	}
	defer context.AfterFunc(ctx, stop)() // if the call is cancelled, cancel the work too
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
			"%s did not answer within %v; it is unknown whether the call was carried out", p.tool.Name, timeout)
	}
}

// outcome converts the results of a binding to an outcome. It removes secrets from the refusal, because a refusal can
// quote a server.
func (g *Gateway) outcome(result call.Result, err error) call.Outcome {
	if err == nil {
		return call.Outcome{Result: result}
	}
	kept := call.Result{Log: result.Log, Observed: result.Observed}
	return call.Outcome{Result: kept, Refusal: g.guards.redact(call.AsRefusal(stageAct, err))}
}

func (p *inflight) finish(o call.Outcome) *call.Refusal {
	p.result = o.Result
	return o.Refusal
}

// timeout returns the call's timeout: the tool's timeout, the program's wall-clock limit, or the default timeout. A
// caller can shorten the timeout but cannot extend it.
func (g *Gateway) timeout(p *inflight) time.Duration {
	timeout := defaultTimeout
	_, runs := p.tool.Binding.(agent.RunProgram)
	switch bounds := g.agent.Resources; {
	case p.tool.Timeout > 0:
		timeout = min(p.tool.Timeout, maxTimeout)
	case runs && bounds != nil && bounds.WallClock > 0:
		timeout = min(bounds.WallClock, maxTimeout) + sandboxTime
	}
	if p.Timeout > 0 {
		timeout = min(timeout, p.Timeout)
	}
	return timeout
}

// guarded returns a copy of the call for the binding. In the copy, messages that the server sends to the client pass
// the guardrails, and the flow memory records them as untrusted text.
func (g *Gateway) guarded(ctx context.Context, p *inflight) *call.Call {
	copied := *p.Call
	notify, client := g.observeMessages(p)
	copied.OnNotify, copied.Client = g.guards.guardNotify(ctx, notify, p.noteIn), g.guards.client(ctx, client, p.noteIn)
	return &copied
}

// listener forwards a server's notifications to the caller until the call times out. After that, the caller has a
// refusal and must not receive notifications for the call.
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
