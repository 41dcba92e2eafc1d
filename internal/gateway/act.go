package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
)

const (
	stageAct       = "act"
	defaultTimeout = 30 * time.Second
	// lateGrace is how long an answer is waited for after a call's time is over.
	lateGrace = 60 * time.Second
	// longest is a century in milliseconds. What a manifest says beyond that may
	// be more than can be counted.
	longest = 100 * 365 * 24 * time.Hour
	// around is what a program's call may take beyond the program's own time: its
	// sandbox is made before, and taken down after.
	around = 15 * time.Second
)

// outcome is what a binding gave.
type outcome struct {
	result  call.Result
	stopped *call.Refusal
}

// act lets the binding do the work, within the tool's time.
func act(g *Gateway, ctx context.Context, p *passing) *call.Refusal {
	if p.tool.Binding == nil || g.binding == nil {
		r := call.Refuse(stageAct, call.UnknownTool, "%s is described, not served", p.tool.Name)
		r.Unsent = true
		return r
	}
	timeout := g.timeout(p)
	if !p.intended {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		o := g.work(ctx, p.tool, g.guarded(p.Call))
		p.result = o.result
		return o.stopped
	}
	return g.actWithEffect(ctx, p, timeout)
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

// guarded is a call whose client hears nothing that was not scanned.
func (g *Gateway) guarded(c *call.Call) *call.Call {
	if c.OnNotify == nil && c.Client == nil {
		return c
	}
	copied := *c
	copied.OnNotify, copied.Client = g.guards.hear(c.OnNotify), g.guards.client(c.Client)
	return &copied
}

// work asks the binding. Its refusals may quote a server, and pass the scan too.
func (g *Gateway) work(ctx context.Context, t *agent.Tool, c *call.Call) outcome {
	result, err := g.binding.Act(ctx, t, c)
	if err == nil {
		return outcome{result: result}
	}
	return outcome{result: call.Result{Log: result.Log}, stopped: g.guards.hush(call.AsRefusal(stageAct, err))}
}

// actWithEffect does work that must not be forgotten: when its time is over the
// caller is told, and the answer is still waited for.
func (g *Gateway) actWithEffect(ctx context.Context, p *passing, timeout time.Duration) *call.Refusal {
	work, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout+g.lateGrace)
	unlink := context.AfterFunc(ctx, stop) // a caller that cancels ends the work
	c := *g.guarded(p.Call)
	told := &listener{notify: c.OnNotify}
	if c.OnNotify != nil {
		c.OnNotify = told.hear
	}
	answers := make(chan outcome, 1)
	g.late.Go(func() {
		defer stop()
		answers <- g.work(work, p.tool, &c)
	})
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case o := <-answers:
		unlink()
		p.result = o.result
		return o.stopped
	case <-timer.C:
		unlink()
		told.leave()
		p.late = answers
		return call.Uncertain(stageAct, call.TimedOut, "%s did not answer within %v; whether it was carried out is not known", p.tool.Name, timeout)
	}
}

// listener hands notifications on until the caller has its answer.
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
