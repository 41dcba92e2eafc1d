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

// Clients see the skills of a bundle as prompts. The router skill is the first prompt. The manifest contains the names
// of the skills, so a prompts/list request is answered immediately. A prompts/get request waits until the bundle has
// been read. If the bundle differs from the manifest, the agent is not served.

// skillsWait is the time limit for reading a bundle.
const skillsWait = time.Minute

// skillSet holds the skills of an agent. The fields bundle, refusal and lacking are valid only after skillSet.read has
// been closed.
type skillSet struct {
	read    chan struct{} // closed when either bundle or refusal is set
	bundle  *skill.Bundle
	refusal *call.Refusal
	lacking bool
}

// serveSkills offers the skills of a bundle to clients and starts reading the bundle.
func (a *Agent) serveSkills() {
	declared := a.manifest.Agent().Skills
	if declared == nil || len(declared.List) == 0 {
		return
	}
	a.skills = &skillSet{read: make(chan struct{})}
	narrowing := make(map[string]call.Allowlist, len(declared.List))
	prompts := make([]front.Prompt, 0, len(declared.List))
	for _, s := range declared.List {
		get := func(ctx context.Context, f *call.Forward) (jsontext.Value, error) {
			if g := a.Gateway(); g != nil {
				return g.Prompt(ctx, f, s.ID, a.skills.prompt)
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

// proveSkills waits until the skills have been read. The agent fails if the skills cannot be read.
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
		r.Hint = "set skills_source.key to a folder next to the manifest; " +
			"or configure a bucket under [skills] in config.toml, and set skills_source.key to a key in that bucket"
	}
	return r, true
}

// SkillTools returns the names of the tools that the agent's skills may use.
func SkillTools(a *agent.Agent) []string {
	var tools []string
	for i := range a.Tools {
		if a.Tools[i].URI == nil {
			tools = append(tools, a.Tools[i].Name)
		}
	}
	return tools
}

// ReadSkills reads the skills of an agent. It reads them from the skills store that config.toml specifies. If no
// skills store is specified, it reads them from the folder that [SkillsFolder] opens. The error is a [*skill.Invalid]
// if the skills differ from the manifest.
func ReadSkills(
	ctx context.Context, m *manifest.Manifest, h home.Home, credentials *credential.Source,
) (*skill.Bundle, error) {
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

// SkillsFolder opens the folder that contains an agent's skills. The field skills_source.key of the manifest is the
// path of the folder, relative to the manifest. If this field is missing, the skills are in the manifest's own
// folder. The caller must close the folder.
func SkillsFolder(m *manifest.Manifest) (*skill.Folder, error) {
	return skill.OpenFolder(filepath.Dir(m.Path), cmp.Or(m.Agent().Skills.SourceKey, "."))
}

// storeCredential returns a function that finds the credentials of the skills store. The credentials belong to ambit
// itself, not to an agent with the name "ambit".
func storeCredential(config *skill.StoreConfig, s *credential.Source) skill.Credential {
	return func(ref, variable string) (string, error) {
		missing := func(format string, args ...any) error {
			r := call.Refuse("act", call.CredentialMissing, format, args...)
			r.Hint = fmt.Sprintf("store the credential as a secret of ambit itself: ambit secret set ambit %s "+
				"(or set the environment variable %s)", ref, variable)
			return r
		}
		if s.Vault != nil {
			secret, found, err := s.Vault.Get(credential.Own, ref)
			switch {
			case err != nil:
				return "", missing("the credential %s for the skills store cannot be read: %v", diag.Quote(ref), err)
			case found && !config.Covered(secret.Hosts()):
				return "", missing("the credential %s was set for other hosts, not for %s", diag.Quote(ref), config.Host())
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
		return "", missing("the credential %s for the skills store is not set", diag.Quote(ref))
	}
}

// promptDefinition returns the definition of a skill for prompts/list.
func promptDefinition(s agent.Skill) jsontext.Value {
	d := map[string]any{"name": s.ID}
	if s.Name != "" {
		d["title"] = s.Name
	}
	if s.Description != "" {
		d["description"] = s.Description
	}
	if len(s.Tags) > 0 {
		d["_meta"] = map[string]any{"ambit/tags": s.Tags}
	}
	return mustJSON(d)
}

// prompt returns the skill's text as a result of prompts/get.
func (s *skillSet) prompt(ctx context.Context, id string) (jsontext.Value, error) {
	if !waitFor(ctx, s.read) {
		return nil, call.Refuse("act", call.TimedOut, "the skills were not read in time").Again()
	}
	if s.refusal != nil {
		return nil, s.refusal
	}
	d := s.bundle.Skill(id)
	content := map[string]any{"type": "text", "text": d.Text}
	result := map[string]any{"messages": []any{map[string]any{"role": "user", "content": content}}}
	if d.Description != "" {
		result["description"] = d.Description
	}
	return mustJSON(result), nil
}

// mustJSON encodes a value that consists only of maps, lists and strings.
func mustJSON(v any) jsontext.Value {
	b, _ := json.Marshal(v) // encoding such a value cannot fail
	return b
}

// skillTools is the list of tools that a skill is allowed to call. [skillTools.Allows] waits until the skill has been
// read. The result is false for every tool if the skill cannot be read.
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
