package draft

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
)

// placeholder matches a placeholder in a URL or a template, such as {id}.
var placeholder = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func (d *Draft) findagent() (text []byte, wrong []string) {
	scan := true
	m := findagent.Manifest{
		Name: d.Name, Description: d.Description, Kind: string(agent.MCPTool), ExamplePrompts: d.Examples,
		SystemPrompt: cmp.Or(d.Prompt,
			"You are a careful assistant. Use your tools, report what they returned, and do not guess."),
		Guardrails: &findagent.Guardrails{
			Input: &findagent.InputRails{MaxLength: 100000}, Output: &findagent.OutputRails{SecretLeakScan: &scan},
			Actions: map[string]findagent.ActionRails{},
		},
		Delivery: &findagent.Delivery{Stdio: &findagent.Stdio{}}, Exec: "user-local", Targets: []string{"claude-code", "cli"},
	}
	if len(m.ExamplePrompts) == 0 {
		m.ExamplePrompts = []string{"What can you do?"}
	}
	for _, c := range words(d.Credentials) {
		ref, host, ok := strings.Cut(c, "=")
		if !ok || ref == "" || host == "" {
			wrong = append(wrong, fmt.Sprintf("%s is not a valid credential: write REF=HOST", diag.Quote(c)))
			continue
		}
		m.CredentialSlots = append(m.CredentialSlots, findagent.CredentialSlot{
			Ref: ref, Label: strings.ReplaceAll(ref, "_", " "), AllowedHosts: []string{host}, Type: "secret",
		})
	}
	for _, h := range d.HTTP {
		name, request, _ := strings.Cut(h, "=")
		method, address, ok := strings.Cut(strings.TrimSpace(request), " ")
		if !ok || name == "" {
			wrong = append(wrong, diag.Quote(h)+" is not a valid http tool: write NAME=METHOD URL, "+
				"such as 'get_user=GET https://api.example.com/users/{id}'")
			continue
		}
		a := &findagent.Action{
			Type: "http", Method: strings.ToUpper(method), URL: strings.TrimSpace(address),
			Headers: map[string]string{"Accept": "application/json"}, AuthRef: credentialFor(m.CredentialSlots, address),
		}
		reads, open := a.Method == "GET" || a.Method == "HEAD", true
		t := tool(name, "Calls "+method+" "+address, a, address)
		t.Annotations = &agent.Annotations{ReadOnly: &reads, OpenWorld: &open}
		if !reads {
			m.Guardrails.Actions[name] = findagent.ActionRails{Approval: "human"}
		}
		m.Tools = append(m.Tools, t)
	}
	for _, h := range d.Templates {
		name, template, ok := strings.Cut(h, "=")
		if !ok || name == "" || template == "" {
			wrong = append(wrong, diag.Quote(h)+" is not a valid template: write NAME=TEXT, "+
				"such as 'summarize=Summarize in three sentences: {text}'")
			continue
		}
		reads := true
		t := tool(name, "Writes a prompt", &findagent.Action{Type: "prompt-template", Template: template}, template)
		t.Annotations = &agent.Annotations{ReadOnly: &reads}
		m.Tools = append(m.Tools, t)
	}
	for _, s := range m.CredentialSlots {
		if !slices.ContainsFunc(m.Tools, func(t findagent.Tool) bool { return t.Action.AuthRef == s.Ref }) {
			wrong = append(wrong,
				"the credential "+s.Ref+" is unused, because no http tool calls the host "+diag.Quote(s.AllowedHosts[0]))
		}
	}
	if len(m.Tools) == 0 { // without tools, the agent is only a prompt
		m.Kind, m.Delivery, m.Exec, m.Targets, m.Guardrails = string(agent.StaticRecipe), nil, "", nil, nil
	}
	return document(m), wrong
}

// credentialFor returns the ref of the credential slot that covers the host of a URL. It returns "" if there is no
// such slot.
func credentialFor(slots []findagent.CredentialSlot, address string) string {
	u, err := url.Parse(placeholder.ReplaceAllString(address, "x"))
	if err != nil {
		return "" // an invalid URL is reported later, when the manifest is validated
	}
	for _, s := range slots {
		if strings.HasSuffix("."+strings.ToLower(u.Hostname()), "."+strings.ToLower(s.AllowedHosts[0])) {
			return s.Ref
		}
	}
	return ""
}

// tool returns a FindAgent tool with an argument for every placeholder in the given text.
func tool(name, description string, a *findagent.Action, text string) findagent.Tool {
	properties, required := map[string]any{}, []string{}
	for _, p := range placeholder.FindAllStringSubmatch(text, -1) {
		if properties[p[1]] == nil {
			properties[p[1]] = map[string]string{"type": "string"}
			required = append(required, p[1])
		}
	}
	schema := document(map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
	return findagent.Tool{Name: name, Description: description, InputSchema: schema, Action: a}
}
