package agent

import "encoding/json"

// Binding is what does the work when a tool is called. The kinds are closed:
// OnServer, HTTP, Prompt, Compose, RunProgram, Native.
type Binding interface {
	// Kind names the binding for people: server, http, prompt-template, …
	Kind() string
	sealed()
}

// OnServer calls the tool of the same name on an MCP tool server.
type OnServer struct {
	Alias string `json:"alias"`
}

// HTTP sends a request. URL, headers and body may hold {param} placeholders.
type HTTP struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Host    string            `json:"host"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body_template,omitempty"`
	// AuthRef names the slot whose credential is attached.
	AuthRef string `json:"auth_ref,omitempty"`
}

// Prompt fills a template and returns it.
type Prompt struct {
	Template string `json:"template"`
}

// Compose calls a tool of another agent, named by NAME.
type Compose struct {
	Agent string `json:"agent"`
	Tool  string `json:"tool"`
}

// RunProgram hands the call to the agent's Program.
type RunProgram struct{}

// Native is a tool of the host's own; declared, not callable yet.
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

// MarshalJSON writes the tool with its binding under the binding's kind.
func (t Tool) MarshalJSON() ([]byte, error) {
	type plain Tool
	var binding map[string]Binding
	if t.Binding != nil {
		binding = map[string]Binding{t.Binding.Kind(): t.Binding}
	}
	return json.Marshal(struct {
		plain
		Binding map[string]Binding `json:"binding,omitempty"`
	}{plain(t), binding})
}

// Transport is how a tool server is reached.
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
	// Digest is that of the published package; empty for a remote server
	// without one. Placeholder says that it is all zeros.
	Digest      string `json:"package_digest,omitempty"`
	Placeholder bool   `json:"placeholder,omitempty"`
}

// Server returns the server of that alias, or nil.
func (a *Agent) Server(alias string) *Server {
	for i := range a.Servers {
		if a.Servers[i].Alias == alias {
			return &a.Servers[i]
		}
	}
	return nil
}

// Setting is an environment variable or header of a server. Its value may
// refer to secrets by $env:NAME; it never holds one.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Refs are the names that the value refers to.
	Refs []string `json:"refs,omitempty"`
}

// Slot is a credential that somebody has to supply, and the only hosts it may
// be sent to.
type Slot struct {
	Ref         string   `json:"ref"`
	Label       string   `json:"label"`
	Env         string   `json:"env"`
	Type        string   `json:"type"`
	Description string   `json:"description,omitempty"`
	Required    bool     `json:"required"`
	Hosts       []string `json:"allowed_hosts"`
}

// Slot returns the slot of that ref, or nil.
func (a *Agent) Slot(ref string) *Slot {
	for i := range a.Slots {
		if a.Slots[i].Ref == ref {
			return &a.Slots[i]
		}
	}
	return nil
}

// Requirement is an MCP server that somebody else provides, and the scopes the
// agent needs on it. It grants nothing.
type Requirement struct {
	Server   string   `json:"server_id"`
	Version  string   `json:"version,omitempty"`
	Scopes   []string `json:"permission_scopes,omitempty"`
	Optional bool     `json:"optional,omitempty"`
}

// Capabilities are the actions that whoever gives the agent work must hold.
type Capabilities struct {
	Required []string `json:"required,omitempty"`
	Optional []string `json:"optional,omitempty"`
}

// ActionNamespaces are those that the actions of capabilities live in.
var ActionNamespaces = []string{"intent", "memory", "identity", "tool", "agent"}

// NetworkAccess is what a program may reach.
type NetworkAccess string

// The kinds of network access, from none to all.
const (
	NetworkOff   NetworkAccess = "off"
	NetworkHTTPS NetworkAccess = "outbound-https-only"
	NetworkFull  NetworkAccess = "full"
)

// Resources bound one run of a program.
type Resources struct {
	WallClockMS int64         `json:"cpu_ms_per_task"`
	MemoryMB    int64         `json:"memory_mb"`
	DiskMB      int64         `json:"disk_mb"`
	Network     NetworkAccess `json:"network"`
}

// Settlement is what a program may cost. A budget of 0 is none.
type Settlement struct {
	CreditsPerHour int64  `json:"budget_credits_per_hour"`
	Priority       string `json:"priority"`
}
