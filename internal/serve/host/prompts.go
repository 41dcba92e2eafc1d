package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

// Clients see the skills of a bundle as prompts, the router first. The manifest names them, so they
// are listed immediately; prompts/get waits until the bundle has been read. If a bundle differs
// from its manifest, the agent is not served.

// skillsWait bounds reading a bundle.
const skillsWait = time.Minute

// skillSet is the skills of an agent, while they are being read and afterwards.
type skillSet struct {
	read    chan struct{} // closed when bundle or refusal is set
	bundle  *skill.Bundle
	refusal *call.Refusal
	lacking bool
}

// serveSkills offers the skills of a bundle to clients and starts reading them.
func (a *Agent) serveSkills() {
	declared := a.manifest.Agent().Skills
	if declared == nil || len(declared.List) == 0 {
		return
	}
	a.skills = &skillSet{read: make(chan struct{})}
	narrowing := make(map[string]call.Allowlist, len(declared.List))
	prompts := make([]front.Prompt, 0, len(declared.List))
	for _, s := range declared.List {
		get := func(ctx context.Context, principal string, _ jsontext.Value) (jsontext.Value, error) {
			if g := a.Gateway(); g != nil {
				return g.Prompt(ctx, principal, s.ID, a.skills.prompt)
			}
			return nil, call.Refuse("record", call.StoreUnavailable, "no store is available to record the use of the skill")
		}
		p := front.Prompt{Name: s.ID, Definition: promptDefinition(s), Get: get}
		if narrowing[s.ID] = (skillTools{a.skills, s.ID}); s.ID == declared.Router {
			prompts = append([]front.Prompt{p}, prompts...)
		} else {
			prompts = append(prompts, p)
		}
	}
	maps.Copy(narrowing, a.options.Skills) // the operator's skills take precedence
	a.front.Prompts, a.front.Skills = prompts, narrowing
	a.background.Go(a.readSkills)
}

func (a *Agent) readSkills() {
	defer close(a.skills.read)
	ctx, cancel := context.WithTimeout(a.ctx, skillsWait)
	defer cancel()
	b, err := ReadSkills(ctx, a.manifest, a.options.Home, a.options.Credentials)
	if err != nil {
		a.skills.refusal, a.skills.lacking = skillsRefusal(err)
		return
	}
	for _, w := range b.Warnings {
		a.options.Log("skills", "warning: "+w.String())
	}
	a.skills.bundle = b
}

// proveSkills waits for the skills; without them the agent is down.
func (a *Agent) proveSkills() {
	if a.skills == nil {
		return
	}
	<-a.skills.read
	if r := a.skills.refusal; r != nil && a.failure == nil {
		a.fail(r, a.skills.lacking)
	}
}

func skillsRefusal(err error) (r *call.Refusal, lacking bool) {
	if invalid, ok := errors.AsType[*skill.Invalid](err); ok {
		r = call.Refuse("act", call.ServerDrifted, "%v", err)
		r.Hint = invalid.Hint()
		return r, false
	}
	if refusal, ok := errors.AsType[*call.Refusal](err); ok {
		return refusal, true
	}
	r = call.Refuse("act", call.ServerUnavailable, "the skills are unavailable: %v", err)
	if errors.Is(err, skill.ErrNoBundle) {
		r.Hint = "set skills_source.key to a folder beside the manifest or, with [skills] in config.toml, to a key in that bucket"
	}
	return r, true
}

// SkillTools returns the names of tools that a skill of an agent may list.
func SkillTools(a *agent.Agent) []string {
	var tools []string
	for i := range a.Tools {
		if a.Tools[i].URI == nil {
			tools = append(tools, a.Tools[i].Name)
		}
	}
	return tools
}

// ReadSkills reads the skills of an agent from the store in config.toml, or else from the folder
// beside the manifest. The error may be a [*skill.Invalid].
func ReadSkills(ctx context.Context, m *manifest.Manifest, h home.Home, credentials *credential.Source) (*skill.Bundle, error) {
	who := m.Agent()
	tools := SkillTools(who)
	config, err := skill.ReadStore(h.Config())
	if err != nil {
		return nil, err
	}
	if config != nil && who.Skills.SourceKind != "" {
		store, err := config.Open(who.Skills.SourceKey, storeCredential(config, credentials))
		if err != nil {
			return nil, err
		}
		return skill.Read(ctx, store, who.Skills, tools)
	}
	folder, err := SkillsFolder(m)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return skill.Read(ctx, folder, who.Skills, tools)
}

// SkillsFolder opens the folder with an agent's skills: beside the manifest or, for a code bundle,
// the manifest's own. It must be closed.
func SkillsFolder(m *manifest.Manifest) (*skill.Folder, error) {
	return skill.OpenFolder(filepath.Dir(m.Path), cmp.Or(m.Agent().Skills.SourceKey, "."))
}

// storeCredential finds the credentials of the skills store. They belong to ambit itself, and are
// not those of an agent named ambit.
func storeCredential(config *skill.StoreConfig, s *credential.Source) skill.Credential {
	return func(ref, variable string) (string, error) {
		missing := func(format string, args ...any) error {
			r := call.Refuse("act", call.CredentialMissing, format, args...)
			r.Hint = fmt.Sprintf("store it: ambit secret set ambit %s, or set the environment variable %s", ref, variable)
			return r
		}
		if s.Vault != nil {
			secret, found, err := s.Vault.Get(credential.Own, ref)
			switch {
			case err != nil:
				return "", missing("the credential %s of the skills store cannot be read: %v", diag.Quote(ref), err)
			case found && !config.Covered(secret.Hosts()):
				return "", missing("the credential %s was set for hosts other than %s", diag.Quote(ref), config.Host())
			case found:
				return secret.Reveal(), nil
			}
		}
		environ := s.Environ
		if environ == nil {
			environ = os.LookupEnv
		}
		if value, ok := environ(variable); ok && value != "" {
			return value, nil
		}
		return "", missing("the credential %s of the skills store is not set", diag.Quote(ref))
	}
}

// promptDefinition is a skill as prompts/list shows it.
func promptDefinition(s agent.Skill) jsontext.Value {
	d := struct {
		Name        string         `json:"name"`
		Title       string         `json:"title,omitempty"`
		Description string         `json:"description,omitempty"`
		Meta        map[string]any `json:"_meta,omitempty"`
	}{Name: s.ID, Title: s.Name, Description: s.Description}
	if len(s.Tags) > 0 {
		d.Meta = map[string]any{"ambit/tags": s.Tags}
	}
	return mustJSON(d)
}

// prompt returns the result of prompts/get.
func (s *skillSet) prompt(ctx context.Context, id string) (jsontext.Value, error) {
	select {
	case <-s.read:
	case <-ctx.Done():
		return nil, call.Refuse("act", call.TimedOut, "the skills were not read in time").Again()
	}
	if s.refusal != nil {
		return nil, s.refusal
	}
	d := s.bundle.Skill(id)
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type message struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	}
	return mustJSON(struct {
		Description string    `json:"description,omitempty"`
		Messages    []message `json:"messages"`
	}{d.Description, []message{{"user", content{"text", d.Text}}}}), nil
}

// mustJSON encodes our own values, which never fails.
func mustJSON(v any) jsontext.Value {
	b, err := json.Marshal(v)
	if err != nil {
		return jsontext.Value("null")
	}
	return b
}

// skillTools is the allowlist of a skill. It waits until the skill has been read; a skill that
// could not be read allows nothing.
type skillTools struct {
	of *skillSet
	id string
}

var _ call.Allowlist = skillTools{}

func (t skillTools) Allows(uri string) bool {
	<-t.of.read
	return t.of.bundle != nil && t.of.bundle.Skill(t.id).Tools.Allows(uri)
}

func (t skillTools) Name() string { return t.id }
