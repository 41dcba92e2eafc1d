package toolserver

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Denial is a right that a confined server lacked when it tried to use something.
type Denial struct {
	// Server is the alias of the server.
	Server string `json:"server"`
	// The field What contains only printable characters and no known credential.
	agent.Right
	// Time is the time of the latest refusal, and Count is the number of refusals.
	Time  time.Time `json:"time"`
	Count int       `json:"count"`
	// Allow is the command that gives the right to the server. It is "" if no command can give the right.
	Allow string `json:"allow,omitempty"`
	// Reason explains the refusal if no command can allow the use, or if a command can allow it only temporarily.
	Reason string `json:"reason,omitempty"`
}

const (
	// maxObserved is the maximum length of three lists: the hosts that a server contacted during a call, the refusals
	// during a call, and the stored denials of a server.
	maxObserved = 16
	// maxWhat is the maximum length of a host or path in bytes.
	maxWhat = 256
	// maxHints is the number of commands in one hint.
	maxHints = 3
)

// observer records which hosts a confined server contacted, and what the sandbox refused.
type observer struct {
	mu      sync.Mutex
	network *egress.Network // the network of the last start; nil before the first start
	denials []Denial        // the latest denials, at most one for each right
	missing []string        // the first hosts that could not be reached
	running map[*observation]struct{}
}

// observation contains what a server did between a call of [observer.begin] and a call of [observer.end].
type observation struct {
	start     time.Time
	contacted []string
	refused   []Denial
	omitted   int
}

func (o *observer) begin() *observation {
	seen := &observation{start: time.Now()}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running == nil {
		o.running = map[*observation]struct{}{}
	}
	o.running[seen] = struct{}{}
	return seen
}

// end ends an observation. It adds the hosts of open connections that carried data during the observation.
func (o *observer) end(seen *observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.running, seen)
	if o.network == nil {
		return
	}
	for _, host := range o.network.Active(seen.start) {
		seen.contact(host)
	}
}

func (o *observer) contact(host string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for seen := range o.running {
		seen.contact(host)
	}
}

func (s *observation) contact(host string) {
	switch {
	case slices.Contains(s.contacted, host):
	case len(s.contacted) < maxObserved:
		s.contacted = append(s.contacted, host)
	default:
		s.omitted++
	}
}

// unreachable records a host that could not be reached. It returns true if the host was not recorded before.
func (o *observer) unreachable(host string) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.missing, host) || len(o.missing) >= maxObserved {
		return false
	}
	o.missing = append(o.missing, host)
	return true
}

// refuse records a denial. It returns true if o.denials did not contain a denial of the same right. The list drops
// old denials, so refuse can return true again for the same right.
func (o *observer) refuse(d Denial) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for seen := range o.running {
		switch {
		case slices.ContainsFunc(seen.refused, func(old Denial) bool { return old.Same(d.Right) }):
		case len(seen.refused) < maxObserved:
			seen.refused = append(seen.refused, d)
		default:
			seen.omitted++
		}
	}
	d.Count = 1
	if i := slices.IndexFunc(o.denials, func(old Denial) bool { return old.Same(d.Right) }); i >= 0 {
		d.Count += o.denials[i].Count
		o.denials = slices.Delete(o.denials, i, i+1)
	}
	o.denials = append(o.denials, d)
	if len(o.denials) > maxObserved {
		o.denials = slices.Delete(o.denials, 0, 1)
	}
	return d.Count == 1
}

// Denials returns the latest denials of all servers, grouped by server. For each server, the latest denial comes
// first.
func (m *Manager) Denials() []Denial {
	var all []Denial
	for _, s := range m.order {
		s.observed.mu.Lock()
		of := slices.Clone(s.observed.denials)
		s.observed.mu.Unlock()
		slices.Reverse(of)
		all = append(all, of...)
	}
	return all
}

// denied records that the sandbox refused something. The parameter allowable reports whether a person can allow it.
func (s *server) denied(d Denial, allowable bool, log func(string)) {
	c, what := s.options.Confine, d.What
	d.Server, d.What, d.Time = s.alias, s.clean(what), time.Now()
	if allowable && d.What == what { // a command with a shortened or redacted name would allow something else
		d.Allow = AllowCommand(c.Agent, d.Server, d.Right)
	}
	if s.observed.refuse(d) {
		line := "ambit refused " + d.named()
		if d.Allow != "" {
			line += "; to allow it, run: " + d.Allow
		}
		log(line)
	}
	if c.OnDenial != nil {
		c.OnDenial(d)
	}
}

// named returns the quoted name of the refused host or path, followed by the reason, if any.
func (d Denial) named() string {
	if d.Reason == "" {
		return diag.Quote(d.What)
	}
	return diag.Quote(d.What) + " (" + d.Reason + ")"
}

// clean makes a name that a server chose printable and short, and redacts secrets in it.
func (s *server) clean(what string) string {
	return diag.Printable(s.secrets.mask(diag.Cut(what, maxWhat)))
}

// FlagOf maps each kind of right to its flag of ambit allow.
var FlagOf = map[agent.RightKind]string{
	agent.CanRead: "--read", agent.CanWrite: "--write", agent.CanConnect: "--host", agent.CanExecute: "--exec",
}

// AllowCommand returns the command that gives a right to a server.
func AllowCommand(agentName, server string, r agent.Right) string {
	words := []string{"ambit allow", diag.ShellWord(agentName), diag.ShellWord(server), FlagOf[r.Kind], diag.ShellWord(r.What)}
	if r.Private {
		words = append(words, "--private")
	}
	return strings.Join(words, " ")
}

// result returns the hosts that the server contacted and the rights that it lacked, as part of a call's result.
func (s *server) result(seen *observation) call.Observed {
	o := call.Observed{Omitted: seen.omitted}
	for _, host := range seen.contacted {
		o.Contacted = append(o.Contacted, s.clean(host))
	}
	for _, d := range seen.refused {
		o.Refused = append(o.Refused, d.Right)
	}
	return o
}

// hint returns a text that describes what was refused, when it was refused, and how to allow it. It returns "" if
// nothing was refused.
func (s *observation) hint(when string) string {
	var names, commands []string
	for _, d := range s.refused[:min(len(s.refused), maxHints)] {
		names = append(names, d.named())
		if d.Allow != "" {
			commands = append(commands, d.Allow)
		}
	}
	if len(s.refused) > maxHints {
		names = append(names, "more")
	}
	if len(names) == 0 {
		return ""
	}
	hint := "ambit refused " + diag.Words(names, "and") + " to the server while " + when
	if len(commands) > 0 {
		hint += "; if the server needs it, run: " + strings.Join(commands, " && ")
	}
	return hint
}

// addHint adds a hint to a failed result or to a refusal. It leaves other results unchanged.
func addHint(hint string, result *call.Result, err error) error {
	if hint == "" {
		return err
	}
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		hinted := *r
		hinted.Hint, hinted.Command = hint, diag.Command{}
		return &hinted
	}
	start, end := rawjson.Find(result.Raw, "content")
	if !result.IsError || start == end || result.Raw[start] != '[' {
		return err
	}
	text := []byte(`{"type":"text","text":`)
	if more := bytes.TrimSpace(result.Raw[start+1 : end-1]); len(more) > 0 {
		text = append([]byte{','}, text...)
	}
	text, _ = jsontext.AppendQuote(text, hint) // the hint is valid UTF-8
	result.Raw = slices.Concat(result.Raw[:end-1], text, []byte("}"), result.Raw[end-1:])
	return err
}
