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
			wrong = append(wrong, diag.Quote(h)+" is not a valid http tool: write NAME=METHOD URL or NAME=METHOD URL BODY, "+
				"such as 'get_user=GET https://api.example.com/users/{id}'")
			continue
		}
		address, body, _ := strings.Cut(strings.TrimSpace(address), " ")
		a := &findagent.Action{
			Type: "http", Method: strings.ToUpper(method), URL: address, BodyTemplate: strings.TrimSpace(body),
			Headers: map[string]string{"Accept": "application/json"}, AuthRef: credentialFor(m.CredentialSlots, address),
		}
		reads, open := a.Method == "GET" || a.Method == "HEAD", true
		setContentType(a)
		t := tool(name, "Calls "+method+" "+address, a, a.URL, a.BodyTemplate)
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
	u, err := url.Parse(strings.NewReplacer("{", "", "}", "").Replace(address))
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

// setContentType sets the content type of a request with a body. A request that changes something and has no body gets
// an optional JSON body.
func setContentType(a *findagent.Action) {
	if a.BodyTemplate == "" && slices.Contains([]string{"POST", "PUT", "PATCH"}, a.Method) {
		a.BodyTemplate = "{body?}"
	}
	switch {
	case a.BodyTemplate == "":
	case a.BodyTemplate == "{body?}" || agent.KindOfBody("", a.BodyTemplate) == agent.JSONBody:
		a.Headers["Content-Type"] = "application/json"
	case form.MatchString(a.BodyTemplate):
		a.Headers["Content-Type"] = "application/x-www-form-urlencoded"
	}
}

// form matches the body of a form, such as amount={amount}&note={note?}.
var form = regexp.MustCompile(`^[^\s=&]+=[^\s=&]*(&[^\s=&]+=[^\s=&]*)*$`)

// tool returns a FindAgent tool with an argument for every placeholder in the given texts.
func tool(name, description string, a *findagent.Action, texts ...string) findagent.Tool {
	properties, required := map[string]any{}, []string{}
	for i, text := range texts {
		found, _ := agent.Placeholders(text)
		for _, p := range found {
			if properties[p.Name] != nil {
				continue
			}
			switch inJSON := i > 0 && a.Headers["Content-Type"] == "application/json"; {
			case text == "{body?}":
				properties[p.Name] = map[string]string{"type": "object"}
			case p.Modifier == agent.Repeated:
				properties[p.Name] = map[string]string{"type": "array"}
			case inJSON && (p.Start == 0 || text[p.Start-1] != '"'):
				properties[p.Name] = map[string]string{} // any JSON value
			default:
				properties[p.Name] = map[string]string{"type": "string"}
			}
			if p.Modifier == "" {
				required = append(required, p.Name)
			}
		}
	}
	schema := document(map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
	return findagent.Tool{Name: name, Description: description, InputSchema: schema, Action: a}
}
