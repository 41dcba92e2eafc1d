// Package gateway is the door: every call of every agent goes through
// [Gateway.Call], and there is no second way in.
//
// A call passes the stages in the order of the list in [Gateway.Call]. Each
// stage is a file of its own and can stop the call with a typed refusal. What
// does the work at the end is a [call.Binding], which nobody else gets to see.
package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/gate"
)

// Gateway is the door of one agent.
type Gateway struct {
	agent   *agent.Agent
	servers call.Binding
}

// New makes the door of an agent whose tools on servers are carried out by
// servers.
func New(a *agent.Agent, servers call.Binding) *Gateway {
	return &Gateway{agent: a, servers: servers}
}

// Agent is whose door it is.
func (g *Gateway) Agent() *agent.Agent { return g.agent }

// passing is a call on its way through the stages.
type passing struct {
	*call.Call
	tool   *agent.Tool
	result call.Result
}

// stage lets a call pass or stops it.
type stage func(*Gateway, context.Context, *passing) error

// stages are all of them, in order. DESIGN: admit, resolve, gate, guard in,
// remember, limit, approve, intend, act, guard out, record; what is not in the
// list does not exist yet.
var stages = []stage{admit, resolveStage, gateStage, act}

// Call makes a call, or says with a *call.Refusal why not.
func (g *Gateway) Call(ctx context.Context, c *call.Call) (call.Result, error) {
	if c.ID == "" {
		c.ID = NewID()
	}
	p := &passing{Call: c}
	start := time.Now()
	for _, s := range stages {
		if err := s(g, ctx, p); err != nil {
			return call.Result{}, err
		}
	}
	p.result.Duration = time.Since(start)
	return p.result, nil
}

// Why tells what each stage that judges would say of a call, without making
// it. All reasons are given, not only the first no.
func (g *Gateway) Why(c *call.Call) (allowed bool, reasons []call.Reason) {
	p := &passing{Call: c}
	for _, s := range []struct {
		name string
		run  stage
	}{{stageAdmit, admit}, {stageResolve, resolveStage}} {
		if err := s.run(g, context.Background(), p); err != nil {
			r, _ := errors.AsType[*call.Refusal](err)
			return false, append(reasons, call.Reason{Stage: s.name, Code: r.Code, Detail: r.Message})
		}
		detail := "the arguments are one JSON object"
		if s.name == stageResolve {
			detail = "it is the declared tool " + p.tool.Name
			if p.tool.URI != nil {
				detail = "it is the declared tool " + p.tool.URI.String()
			}
		}
		reasons = append(reasons, call.Reason{Stage: s.name, Allowed: true, Detail: detail})
	}
	d := gate.Decide(g.agent, p.tool, p.Call)
	return d.Allowed, append(reasons, d.Reasons...)
}

func resolveStage(g *Gateway, _ context.Context, p *passing) error {
	t, refusal := resolve(g.agent, p.Tool)
	if refusal != nil {
		return refusal
	}
	p.tool = t
	return nil
}

func gateStage(g *Gateway, _ context.Context, p *passing) error {
	if r := gate.Decide(g.agent, p.tool, p.Call).Refusal(); r != nil {
		return r
	}
	return nil
}

const (
	stageAct       = "act"
	defaultTimeout = 30 * time.Second
)

// act lets the binding do the work, within the tool's time.
func act(g *Gateway, ctx context.Context, p *passing) error {
	if _, ok := p.tool.Binding.(agent.OnServer); !ok {
		return call.Refuse(stageAct, call.UnknownTool, "%s is described, not served", p.tool.Name)
	}
	timeout := defaultTimeout
	if p.tool.TimeoutMS > 0 {
		timeout = time.Duration(p.tool.TimeoutMS) * time.Millisecond
	}
	if p.Timeout > 0 {
		timeout = min(timeout, p.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err := g.servers.Act(ctx, p.tool, p.Call)
	p.result = result
	return err
}

// NewID makes the id of a call.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
