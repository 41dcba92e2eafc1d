package draft

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

type findAgentManifest struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Prompt      string     `json:"system_prompt"`
	Kind        string     `json:"kind"`
	Tools       []declared `json:"tools"`
	Slots       []slot     `json:"credential_slots,omitempty"`
	Rails       *rails     `json:"guardrails,omitempty"`
	Examples    []string   `json:"example_prompts"`
	Delivery    string     `json:"delivery,omitempty"`
	Exec        string     `json:"exec,omitempty"`
	Targets     []string   `json:"targets,omitempty"`
}

type declared struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Input       input           `json:"input_schema"`
	Hints       map[string]bool `json:"annotations"`
	Action      action          `json:"action"`
}

type input struct {
	Type       string              `json:"type"`
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	Additional bool                `json:"additionalProperties"`
}

type property struct {
	Type string `json:"type"`
}

type action struct {
	Type     string            `json:"type"`
	Method   string            `json:"method,omitempty"`
	URL      string            `json:"url,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Template string            `json:"template,omitempty"`
	Auth     string            `json:"auth_ref,omitempty"`
}

type slot struct {
	Ref      string   `json:"ref"`
	Label    string   `json:"label"`
	Hosts    []string `json:"allowed_hosts"`
	Type     string   `json:"type"`
	Required bool     `json:"required"`
}

type rails struct {
	Input   map[string]any            `json:"input"`
	Output  map[string]bool           `json:"output"`
	Actions map[string]map[string]any `json:"actions,omitempty"`
}

// parameter is a placeholder in a text, such as {id}.
var parameter = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func (d *Draft) findagent() (text []byte, wrong []string) {
	m := findAgentManifest{
		Name: d.Name, Description: d.Description, Kind: "mcp-tool", Tools: []declared{},
		Prompt:   cmp.Or(d.Prompt, "You are a careful assistant. Use your tools, report what they returned, and do not guess."),
		Rails:    &rails{Input: map[string]any{"max_length": 100000}, Output: map[string]bool{"secret_leak_scan": true}, Actions: map[string]map[string]any{}},
		Examples: d.Examples, Delivery: "mcp.stdio", Exec: "user-local", Targets: []string{"claude-code", "cli"},
	}
	if len(m.Examples) == 0 {
		m.Examples = []string{"What can you do?"}
	}
	for _, c := range words(d.Credentials) {
		ref, host, ok := strings.Cut(c, "=")
		if !ok || ref == "" || host == "" {
			wrong = append(wrong, fmt.Sprintf("%s is not a credential: write REF=HOST", diag.Quote(c)))
			continue
		}
		m.Slots = append(m.Slots, slot{Ref: ref, Label: strings.ReplaceAll(ref, "_", " "), Hosts: []string{host}, Type: "secret", Required: true})
	}
	for _, h := range d.HTTP {
		name, request, _ := strings.Cut(h, "=")
		method, address, ok := strings.Cut(strings.TrimSpace(request), " ")
		if !ok || name == "" {
			wrong = append(wrong, fmt.Sprintf("%s is not an http tool: write NAME=METHOD URL, such as 'get_user=GET https://api.example.com/users/{id}'", diag.Quote(h)))
			continue
		}
		t := tool(name, "Calls "+method+" "+address, action{Type: "http", Method: strings.ToUpper(method), URL: strings.TrimSpace(address), Headers: map[string]string{"Accept": "application/json"}}, address)
		t.Action.Auth = m.credentialFor(address)
		reads := t.Action.Method == "GET" || t.Action.Method == "HEAD"
		t.Hints = map[string]bool{"readOnlyHint": reads, "openWorldHint": true}
		if !reads {
			m.Rails.Actions[name] = map[string]any{"approval": "human"}
		}
		m.Tools = append(m.Tools, t)
	}
	for _, h := range d.Templates {
		name, template, ok := strings.Cut(h, "=")
		if !ok || name == "" || template == "" {
			wrong = append(wrong, fmt.Sprintf("%s is not a template: write NAME=TEXT, such as 'summarize=Summarize in three sentences: {text}'", diag.Quote(h)))
			continue
		}
		t := tool(name, "Writes a prompt", action{Type: "prompt-template", Template: template}, template)
		t.Hints = map[string]bool{"readOnlyHint": true}
		m.Tools = append(m.Tools, t)
	}
	for _, s := range m.Slots {
		if !slices.ContainsFunc(m.Tools, func(t declared) bool { return t.Action.Auth == s.Ref }) {
			wrong = append(wrong, fmt.Sprintf("no http tool calls %s, so the credential %s would be unused", diag.Quote(s.Hosts[0]), s.Ref))
		}
	}
	if len(m.Tools) == 0 { // a prompt to paste into any assistant
		m.Kind, m.Delivery, m.Exec, m.Targets, m.Rails = "static-recipe", "", "", nil, nil
	}
	return document(m), wrong
}

// credentialFor returns the slot for the host of an address.
func (m *findAgentManifest) credentialFor(address string) string {
	u, err := url.Parse(parameter.ReplaceAllString(address, "x"))
	if err != nil {
		return "" // validating the manifest reports it at its location
	}
	for _, s := range m.Slots {
		if h := s.Hosts[0]; strings.EqualFold(u.Hostname(), h) || strings.HasSuffix(strings.ToLower(u.Hostname()), "."+strings.ToLower(h)) {
			return s.Ref
		}
	}
	return ""
}

// tool returns a tool with an argument for every placeholder in its text.
func tool(name, description string, a action, text string) declared {
	in := input{Type: "object", Properties: map[string]property{}, Required: []string{}}
	for _, p := range parameter.FindAllStringSubmatch(text, -1) {
		if _, seen := in.Properties[p[1]]; !seen {
			in.Properties[p[1]] = property{Type: "string"}
			in.Required = append(in.Required, p[1])
		}
	}
	return declared{Name: name, Description: description, Input: in, Action: a}
}
