package findagent

import (
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// delivery parses the fields that say where the agent runs and how clients reach it.
func (p *parser) delivery(o *read.Object, m *Manifest) {
	m.Delivery = p.parseModes(o.Get("delivery", read.Optional))
	m.Exec, _ = o.Enum("exec", read.Optional, execs)
	m.Auth, _ = o.Enum("auth", read.Optional, auths)
	isClient := func(v doc.Value) bool { return p.OneOf(v, clients) }
	m.Targets = p.Distinct(o.List("targets", read.Optional), isClient)
	if m.Exec == agent.HostedExec && m.Delivery != nil && m.Delivery.Stdio != nil {
		p.Report(ruleHostedStdio, o.Value().Get("exec").Place(), "",
			"the agent is hosted, so no client can start it over stdio")
	}
}

// parseModes parses the field "delivery", which is a string or an object.
func (p *parser) parseModes(v doc.Value) *Delivery {
	d := &Delivery{}
	switch v.Kind() {
	case doc.Absent:
		return nil
	case doc.String:
		if !p.OneOf(v, deliveries) {
			return nil
		}
		switch v.Text() {
		case "prompt":
			d.Prompt = true
		case "mcp.stdio":
			d.Stdio = &Stdio{}
		case "mcp.remote":
			d.Remote = &Remote{}
		}
		return d
	case doc.Object:
	default:
		p.Report(ruleDelivery, v.Place(), "", `"delivery" must be a string or an object, not %s`, v.Kind())
		return nil
	}
	o := p.Object(v)
	if prompt := o.Get("prompt", read.Optional); prompt.Ok() {
		if d.Prompt = prompt.Text() == "true" || prompt.Is(doc.Object); !d.Prompt {
			p.Report(ruleDelivery, prompt.Place(), "write true, or remove the field", `"prompt" must be true or an object`)
		}
	}
	if mcp := o.Get("mcp", read.Optional); p.Is(mcp, doc.Object) {
		p.mcpModes(mcp, d)
	}
	o.Done()
	if !v.Get("prompt").Ok() && !v.Get("mcp").Ok() {
		p.Report(ruleDelivery, v.Head(), "", "\"delivery\" does not say how to reach the agent")
	}
	return d
}

func (p *parser) mcpModes(v doc.Value, d *Delivery) {
	o := p.Object(v)
	if stdio := o.Get("stdio", read.Optional); p.Is(stdio, doc.Object) {
		s := p.Object(stdio)
		d.Stdio = &Stdio{}
		d.Stdio.Command, _ = s.Text("command", read.Optional)
		d.Stdio.Args = s.AnyTexts("args", read.Optional)
		s.Done()
	}
	if remote := o.Get("remote", read.Optional); p.Is(remote, doc.Object) {
		r := p.Object(remote)
		d.Remote = &Remote{}
		if u, ok := r.String("url", read.Optional); ok {
			if d.Remote.URL = u; !isHTTPS(u) {
				p.Report(ruleRemoteURL, remote.Get("url").Place(), "", "%s is not an https address", diag.Quote(u))
			}
		}
		r.Done()
	}
	o.Done()
	if !v.Get("stdio").Ok() && !v.Get("remote").Ok() {
		p.Report(ruleDelivery, v.Head(), `add "stdio" or "remote"`, "\"mcp\" does not say how to reach the agent")
	}
}

// isHTTPS reports whether a string is an https address to which a client can connect.
func isHTTPS(s string) bool {
	u, err := url.Parse(s)
	return err == nil && strings.HasPrefix(s, "https://") && u.Hostname() != "" && u.User == nil &&
		!strings.ContainsAny(s, " \t\\")
}
