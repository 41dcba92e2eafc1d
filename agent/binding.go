package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// Binding does the work when a tool is called. The set is closed: OnServer, HTTP, Prompt, Compose, RunProgram, Native.
type Binding interface {
	// Kind names the binding for people: server, http, prompt-template, …
	Kind() string
	sealed()
}

// OnServer calls the tool of the same name on an MCP tool server.
type OnServer struct {
	Alias string `json:"alias"`
}

// HTTP sends a request. URL, headers and body may contain {param} placeholders; see [Placeholders].
type HTTP struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Host    string            `json:"host"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body_template,omitempty"`
	// AuthRef names the slot whose credential is attached to the request.
	AuthRef string `json:"auth_ref,omitempty"`
}

// Prompt fills a template and returns it.
type Prompt struct {
	Template string `json:"template"`
}

// Compose calls a tool of another agent.
type Compose struct {
	Agent string `json:"agent"`
	Tool  string `json:"tool"`
}

// RunProgram hands the call to the agent's Program.
type RunProgram struct{}

// Native is a tool of the host program. It is declared and cannot be called yet.
type Native struct {
	Namespace string `json:"namespace"`
	Digest    string `json:"digest"`
}

func (OnServer) Kind() string   { return "server" }
func (HTTP) Kind() string       { return "http" }
func (Prompt) Kind() string     { return "prompt-template" }
func (Compose) Kind() string    { return "compose" }
func (RunProgram) Kind() string { return "program" }
func (Native) Kind() string     { return "native" }

func (OnServer) sealed()   {}
func (HTTP) sealed()       {}
func (Prompt) sealed()     {}
func (Compose) sealed()    {}
func (RunProgram) sealed() {}
func (Native) sealed()     {}

// toolJSON is the JSON form of a Tool: the timeout in milliseconds, and the binding under its kind.
type toolJSON[B any] struct {
	*plainTool
	TimeoutMS int64        `json:"timeout_ms,omitempty"`
	Binding   map[string]B `json:"binding,omitempty"`
}

type plainTool Tool

// MarshalJSON writes the tool with its binding under the binding's kind.
func (t Tool) MarshalJSON() ([]byte, error) {
	j := toolJSON[Binding]{plainTool: (*plainTool)(&t), TimeoutMS: t.Timeout.Milliseconds()}
	if t.Binding != nil {
		j.Binding = map[string]Binding{t.Binding.Kind(): t.Binding}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (t *Tool) UnmarshalJSON(b []byte) error {
	var read Tool
	j := toolJSON[json.RawMessage]{plainTool: (*plainTool)(&read)}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if len(j.Binding) > 1 {
		return fmt.Errorf("tool %q has %d bindings, not one", read.Name, len(j.Binding))
	}
	for kind, raw := range j.Binding {
		binding, err := readBinding(kind, raw)
		if err != nil {
			return fmt.Errorf("tool %q: %w", read.Name, err)
		}
		read.Binding = binding
	}
	read.Timeout = Milliseconds(j.TimeoutMS)
	*t = read
	return nil
}

func readBinding(kind string, raw []byte) (Binding, error) {
	switch kind {
	case OnServer{}.Kind():
		return readInto[OnServer](raw)
	case HTTP{}.Kind():
		return readInto[HTTP](raw)
	case Prompt{}.Kind():
		return readInto[Prompt](raw)
	case Compose{}.Kind():
		return readInto[Compose](raw)
	case RunProgram{}.Kind():
		return readInto[RunProgram](raw)
	case Native{}.Kind():
		return readInto[Native](raw)
	}
	return nil, fmt.Errorf("unknown binding %q", kind)
}

func readInto[B Binding](raw []byte) (Binding, error) {
	var b B
	err := json.Unmarshal(raw, &b)
	return b, err
}

// Milliseconds converts a number of milliseconds. A number beyond the range of a Duration (292 years) becomes the
// longest one.
func Milliseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// Transport connects to a tool server.
type Transport string

// The transports.
const (
	Stdio          Transport = "stdio"
	StreamableHTTP Transport = "http"
)

// Server is an MCP tool server that the agent starts or connects to.
type Server struct {
	Alias     string    `json:"alias"`
	Transport Transport `json:"transport"`
	Command   string    `json:"command,omitempty"`
	Args      []string  `json:"args,omitempty"`
	Endpoint  string    `json:"endpoint,omitempty"`
	Env       []Setting `json:"env,omitempty"`
	Headers   []Setting `json:"headers,omitempty"`
	Version   string    `json:"version"`
	// Digest is the digest of the published package; a remote server may have none. Placeholder reports that the
	// digest is all zeros, so that it pins nothing yet.
	Digest      string `json:"package_digest,omitempty"`
	Placeholder bool   `json:"placeholder,omitempty"`
}

// Server returns the server with that alias, or nil.
func (a *Agent) Server(alias string) *Server {
	for i := range a.Servers {
		if a.Servers[i].Alias == alias {
			return &a.Servers[i]
		}
	}
	return nil
}

// Setting is an environment variable or header of a server. Its value may refer to secrets as $env:NAME and never
// contains one.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Refs lists the names that the value refers to.
	Refs []string `json:"refs,omitempty"`
}

// Slot is a credential that the operator supplies, with the only hosts that may receive it.
type Slot struct {
	Ref         string   `json:"ref"`
	Label       string   `json:"label"`
	Env         string   `json:"env"`
	Type        string   `json:"type"`
	Description string   `json:"description,omitempty"`
	Required    bool     `json:"required"`
	Hosts       []string `json:"allowed_hosts"`
}

// Slot returns the slot with that ref, or nil.
func (a *Agent) Slot(ref string) *Slot {
	for i := range a.Slots {
		if a.Slots[i].Ref == ref {
			return &a.Slots[i]
		}
	}
	return nil
}

// Covers reports whether host may receive the slot's credential; see [Covers].
func (s *Slot) Covers(host string) bool { return Covers(s.Hosts, host) }

// Covers reports whether host is one of hosts or a subdomain of one. It ignores letter case and a final dot.
func Covers(hosts []string, host string) bool {
	host = strings.TrimSuffix(host, ".")
	for _, h := range hosts {
		if len(host) < len(h) || h == "" {
			continue
		}
		at := len(host) - len(h)
		if strings.EqualFold(host[at:], h) && (at == 0 || host[at-1] == '.') {
			return true
		}
	}
	return false
}

// Requirement is an MCP server that the operator provides, and the scopes that the agent needs on it. It grants nothing.
type Requirement struct {
	Server   string   `json:"server_id"`
	Version  string   `json:"version,omitempty"`
	Scopes   []string `json:"permission_scopes,omitempty"`
	Optional bool     `json:"optional,omitempty"`
}

// Capabilities are the actions that a caller must be granted to use the agent.
type Capabilities struct {
	Required []string `json:"required,omitempty"`
	Optional []string `json:"optional,omitempty"`
}

// ActionNamespaces are the namespaces of capability actions.
var ActionNamespaces = []string{"intent", "memory", "identity", "tool", "agent"}

// NetworkAccess limits the hosts that a program may reach.
type NetworkAccess string

// The kinds of network access, from none to all.
const (
	NetworkOff   NetworkAccess = "off"
	NetworkHTTPS NetworkAccess = "outbound-https-only"
	NetworkFull  NetworkAccess = "full"
)

// Resources bound one run of a program.
type Resources struct {
	WallClock time.Duration
	MemoryMB  int64
	DiskMB    int64
	Network   NetworkAccess
}

// resourcesJSON is the JSON form of Resources, with Covenant's names and units.
type resourcesJSON struct {
	WallClockMS int64         `json:"cpu_ms_per_task"`
	MemoryMB    int64         `json:"memory_mb"`
	DiskMB      int64         `json:"disk_mb"`
	Network     NetworkAccess `json:"network"`
}

// MarshalJSON writes the resources with Covenant's names and units.
func (r Resources) MarshalJSON() ([]byte, error) {
	return json.Marshal(resourcesJSON{r.WallClock.Milliseconds(), r.MemoryMB, r.DiskMB, r.Network})
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (r *Resources) UnmarshalJSON(b []byte) error {
	var j resourcesJSON
	err := json.Unmarshal(b, &j)
	*r = Resources{Milliseconds(j.WallClockMS), j.MemoryMB, j.DiskMB, j.Network}
	return err
}

// Settlement limits the cost of a program. A budget of 0 is no budget.
type Settlement struct {
	CreditsPerHour int64    `json:"budget_credits_per_hour"`
	Priority       Priority `json:"priority"`
}

// Priority orders the waiting tasks of a program.
type Priority string

// The priorities.
const (
	PriorityLow    Priority = "low"
	PriorityNormal Priority = "normal"
	PriorityHigh   Priority = "high"
)
