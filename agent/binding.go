package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Binding defines how calls to a tool are carried out. The only implementations are OnServer, HTTP, Prompt, Compose,
// RunProgram and Native.
type Binding interface {
	// Kind returns the kind of binding for display, such as server or http.
	Kind() string
	sealed()
}

// OnServer calls the tool of the same name on an MCP tool server.
type OnServer struct {
	Alias string `json:"alias"`
}

// HTTP sends an HTTP request. URL, Headers and Body can contain placeholders such as {param}; see [Placeholders].
type HTTP struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Host    string            `json:"host"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body_template,omitempty"`
	// AuthRef is the ref of a credential slot. The request carries the credential of that slot.
	AuthRef string `json:"auth_ref,omitempty"`
}

// ContentType returns the value of the Content-Type header, or "" if the manifest sets none.
func (h HTTP) ContentType() string {
	for name, value := range h.Headers {
		if strings.EqualFold(name, "Content-Type") {
			return value
		}
	}
	return ""
}

// Prompt fills in a template and returns the text.
type Prompt struct {
	Template string `json:"template"`
}

// Compose calls a tool of another agent.
type Compose struct {
	Agent string `json:"agent"`
	Tool  string `json:"tool"`
}

// RunProgram passes the call to the agent's Program.
type RunProgram struct{}

// Native is a tool that the host program provides. Manifests can declare native tools, but ambit cannot call them.
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

// toolJSON is the JSON encoding of a Tool. The timeout is in milliseconds. The binding is an object with one member,
// whose key is the kind of binding.
type toolJSON[B any] struct {
	*plainTool
	TimeoutMS int64        `json:"timeout_ms,omitempty"`
	Binding   map[string]B `json:"binding,omitempty"`
}

type plainTool Tool

// MarshalJSON encodes the tool as toolJSON.
func (t Tool) MarshalJSON() ([]byte, error) {
	j := toolJSON[Binding]{plainTool: (*plainTool)(&t), TimeoutMS: t.Timeout.Milliseconds()}
	if t.Binding != nil {
		j.Binding = map[string]Binding{t.Binding.Kind(): t.Binding}
	}
	return json.Marshal(j)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (t *Tool) UnmarshalJSON(b []byte) error {
	var read Tool
	j := toolJSON[json.RawMessage]{plainTool: (*plainTool)(&read)}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if len(j.Binding) > 1 {
		return fmt.Errorf("tool %q has %d bindings; only one is allowed", read.Name, len(j.Binding))
	}
	for kind, raw := range j.Binding {
		readBinding := bindingReaders[kind]
		if readBinding == nil {
			return fmt.Errorf("tool %q has an unknown kind of binding: %q", read.Name, kind)
		}
		var err error
		if read.Binding, err = readBinding(raw); err != nil {
			return fmt.Errorf("tool %q: %w", read.Name, err)
		}
	}
	read.Timeout = Milliseconds(j.TimeoutMS)
	*t = read
	return nil
}

var bindingReaders = map[string]func([]byte) (Binding, error){
	OnServer{}.Kind(): readInto[OnServer], HTTP{}.Kind(): readInto[HTTP], Prompt{}.Kind(): readInto[Prompt],
	Compose{}.Kind(): readInto[Compose], RunProgram{}.Kind(): readInto[RunProgram], Native{}.Kind(): readInto[Native],
}

func readInto[B Binding](raw []byte) (Binding, error) {
	var b B
	err := json.Unmarshal(raw, &b)
	return b, err
}

// Milliseconds converts a number of milliseconds to a Duration. If the number is too large for a Duration (292
// years), it returns the longest Duration in whole milliseconds.
func Milliseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// Transport is a way to connect to a tool server.
type Transport string

// The transports.
const (
	Stdio          Transport = "stdio"
	StreamableHTTP Transport = "http"
)

// Server is an MCP tool server that ambit starts or connects to.
type Server struct {
	Alias     string    `json:"alias"`
	Transport Transport `json:"transport"`
	Command   string    `json:"command,omitempty"`
	Args      []string  `json:"args,omitempty"`
	// ArgRefs lists the names in the $env:NAME references of Args, in their order.
	ArgRefs  []string  `json:"arg_refs,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Env      []Setting `json:"env,omitempty"`
	Headers  []Setting `json:"headers,omitempty"`
	Version  string    `json:"version"`
	// Digest is the digest of the published package. It may be empty for a remote server.
	Digest string `json:"package_digest,omitempty"`
	// Placeholder is set if the digest is all zeros. The package is then not pinned.
	Placeholder bool `json:"placeholder,omitempty"`
	// Required is set if the agent cannot work without the server. If an optional server is unavailable, ambit
	// refuses only the calls to that server's tools.
	Required bool `json:"required,omitempty"`
	// Review lists the tools whose side-effect class is a guess that no person has checked yet.
	Review []string `json:"review,omitempty"`
	// Proposed lists the rights that the manifest proposes for the server. They have no effect until the owner accepts
	// them.
	Proposed Access `json:"-"`
}

// Server returns the server with the given alias, or nil if the agent has no such server.
func (a *Agent) Server(alias string) *Server {
	for i := range a.Servers {
		if a.Servers[i].Alias == alias {
			return &a.Servers[i]
		}
	}
	return nil
}

// Refs returns the names in all $env:NAME references of the server.
func (s *Server) Refs() []string {
	refs := slices.Clone(s.ArgRefs)
	for _, set := range slices.Concat(s.Env, s.Headers) {
		refs = append(refs, set.Refs...)
	}
	return refs
}

// SendsAuthorization reports whether the manifest declares the Authorization header of a remote server.
func (s *Server) SendsAuthorization() bool {
	return slices.ContainsFunc(s.Headers, func(h Setting) bool { return strings.EqualFold(h.Name, "Authorization") })
}

// Setting is an environment variable or an HTTP header for a server. The value can refer to secrets as $env:NAME, but
// never contains a secret.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Refs lists the names in the value's $env:NAME references.
	Refs []string `json:"refs,omitempty"`
}

// Slot is a credential slot: a credential that the operator supplies. Only the hosts in Hosts and their subdomains
// can receive the credential.
type Slot struct {
	Ref   string `json:"ref"`
	Label string `json:"label"`
	Env   string `json:"env"`
	Type  string `json:"type"`
	// Scopes are OAuth scopes. If the slot has scopes, its value is the key of a service account, and ambit exchanges
	// the key for an access token with these scopes. Otherwise, ambit sends the value itself.
	Scopes      []string `json:"scopes,omitempty"`
	Description string   `json:"description,omitempty"`
	Required    bool     `json:"required"`
	Hosts       []string `json:"allowed_hosts"`
}

// Slot returns the slot with the given ref, or nil if the agent has no such slot.
func (a *Agent) Slot(ref string) *Slot {
	for i := range a.Slots {
		if a.Slots[i].Ref == ref {
			return &a.Slots[i]
		}
	}
	return nil
}

// Covers reports whether the host is allowed to receive the slot's credential.
func (s *Slot) Covers(host string) bool { return Covers(s.Hosts, host) }

// Covers reports whether the list contains the host or one of its parent domains. The comparison ignores case. It also
// ignores a trailing dot in the host.
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

// Requirement is an MCP server that the agent needs and the operator provides. Scopes lists the permissions that the
// agent needs on this server. A Requirement grants nothing.
type Requirement struct {
	Server   string   `json:"server_id"`
	Version  string   `json:"version,omitempty"`
	Scopes   []string `json:"permission_scopes,omitempty"`
	Optional bool     `json:"optional,omitempty"`
	// Proposed lists the rights that the manifest proposes for the server; see [Server].
	Proposed Access `json:"-"`
}

// Capabilities lists the actions that an agent uses. A caller needs a grant for every required action.
type Capabilities struct {
	Required []string `json:"required,omitempty"`
	Optional []string `json:"optional,omitempty"`
}

// ActionNamespaces are the namespaces of capability actions.
var ActionNamespaces = []string{"intent", "memory", "identity", "tool", "agent"}

// NetworkAccess limits the network connections of a program.
type NetworkAccess string

// The kinds of network access, from none to all.
const (
	NetworkOff   NetworkAccess = "off"
	NetworkHTTPS NetworkAccess = "outbound-https-only"
	NetworkFull  NetworkAccess = "full"
)

// Resources limits one run of a program.
type Resources struct {
	WallClock time.Duration
	MemoryMB  int64
	DiskMB    int64
	Network   NetworkAccess
}

// resourcesJSON is the JSON encoding of Resources. It uses the names and units of Covenant.
type resourcesJSON struct {
	WallClockMS int64         `json:"cpu_ms_per_task"`
	MemoryMB    int64         `json:"memory_mb"`
	DiskMB      int64         `json:"disk_mb"`
	Network     NetworkAccess `json:"network"`
}

// MarshalJSON encodes the resources as resourcesJSON.
func (r Resources) MarshalJSON() ([]byte, error) {
	return json.Marshal(resourcesJSON{r.WallClock.Milliseconds(), r.MemoryMB, r.DiskMB, r.Network})
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (r *Resources) UnmarshalJSON(b []byte) error {
	var j resourcesJSON
	err := json.Unmarshal(b, &j)
	*r = Resources{Milliseconds(j.WallClockMS), j.MemoryMB, j.DiskMB, j.Network}
	return err
}

// Settlement limits the cost of a program. If CreditsPerHour is 0, the cost has no limit.
type Settlement struct {
	CreditsPerHour int64    `json:"budget_credits_per_hour"`
	Priority       Priority `json:"priority"`
}

// Priority decides the order in which a program's waiting tasks run.
type Priority string

// The priorities.
const (
	PriorityLow    Priority = "low"
	PriorityNormal Priority = "normal"
	PriorityHigh   Priority = "high"
)
