package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/manifest"
)

// bundled returns the manifest of an agent with two skills and a tool. The map change replaces some
// of the agent's files.
func bundled(t *testing.T, change map[string]string) *manifest.Manifest {
	t.Helper()
	files := map[string]string{
		"findagent.json": `{"name":"Bundled","system_prompt":"You follow the skills that there are, and nothing else at all.","kind":"skills-bundle",
			"tools":[{"name":"greet","description":"Greets.","annotations":{"readOnlyHint":true},"action":{"type":"prompt-template","template":"Hello."}}],
			"skills_source":{"kind":"r2","key":"bundle"},"skills":[{"id":"free","name":"Free","tags":["a"]},{"id":"quiet","name":"Quiet"}],"router_skill_id":"quiet","example_prompts":["Go."]}`,
		"bundle/free/SKILL.md":  "---\nname: free\ndescription: Free.\n---\nBe free.\n",
		"bundle/quiet/SKILL.md": "---\nname: quiet\ndescription: Quiet.\n---\nBe quiet.\n\n## §TOOLS\nnone\n",
	}
	for name, text := range change {
		files[name] = text
	}
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := manifest.Load(filepath.Join(dir, "findagent.json"), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSkillsArePrompts(t *testing.T) {
	a := begin(t, bundled(t, nil), nil)
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := connect(t, a)
	c.say(hello)
	c.hear()
	c.say(`{"jsonrpc":"2.0","id":2,"method":"prompts/list"}`)
	if got, want := c.hear(), `{"prompts":[{"name":"quiet","title":"Quiet"},{"_meta":{"ambit/tags":["a"]},"name":"free","title":"Free"}]}`; !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
	c.say(`{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"free"}}`)
	if got, want := c.hear(), `{"description":"Free.","messages":[{"content":{"text":"Be free.","type":"text"},"role":"user"}]}`; !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
	skills := a.Front().Skills
	if skills["quiet"].Allows("greet") || skills["quiet"].Name() != "quiet" || !skills["free"].Allows("greet") {
		t.Error("a skill allows a tool that it does not list, or excludes a tool that it lists")
	}
	c.say(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"greet","arguments":{},"_meta":{"ambit/skill":"other"}}}`)
	if got := c.hear(); !strings.Contains(got, "not_in_skill_allowlist") {
		t.Errorf("an unknown skill: %s", got)
	}
}

// Reading a skill is journaled, and secrets in it are redacted.
func TestPromptsAreJournaled(t *testing.T) {
	token := base64.StdEncoding.EncodeToString([]byte("the token is ghp_" + (rand.Text() + rand.Text())[:36]))
	var b *store.Store
	a := begin(t, bundled(t, map[string]string{"bundle/free/SKILL.md": "---\nname: free\ndescription: Free.\n---\nUse " + token + " there.\n"}), func(o *Options) {
		b = o.Store
	})
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	var free front.Prompt
	for _, p := range a.Front().Prompts {
		if p.Name == "free" {
			free = p
		}
	}
	text, err := free.Get(t.Context(), &call.Forward{Method: "prompts/get", Principal: "ada@local"})
	if err != nil || strings.Contains(string(text), token) || !strings.Contains(string(text), "Use [") {
		t.Fatalf("got %s, %v", text, err)
	}
	records, err := b.Journal.Show(t.Context(), journal.Filter{Limit: 1})
	if err != nil || len(records) != 1 {
		t.Fatalf("got %d records, %v", len(records), err)
	}
	sum := sha256.Sum256(text)
	r := records[0].Record
	if r.Tool != "prompt:free" || r.Principal != "ada@local" || r.Agent != "bundled" || r.Decision != journal.Allow ||
		r.ResultHash != hex.EncodeToString(sum[:]) || r.ResultSize != len(text) || !strings.Contains(r.Detail, "secret github-pat at ") || strings.Contains(fmt.Sprintf("%+v", r), token) {
		t.Errorf("the record in the journal is %+v", r)
	}
}

// If the operator registers a skill with the same name, the operator's skill is used.
func TestRegisteredSkillsCount(t *testing.T) {
	a := begin(t, bundled(t, nil), func(o *Options) {
		o.Skills = map[string]call.Allowlist{"free": nothing{}, "mine": nothing{}}
	})
	skills := a.Front().Skills
	if skills["free"].Allows("greet") || skills["mine"] == nil || skills["quiet"] == nil {
		t.Errorf("got %v", skills)
	}
}

type nothing struct{}

func (nothing) Allows(string) bool { return false }
func (nothing) Name() string       { return "nothing" }

func TestBadSkills(t *testing.T) {
	a := begin(t, bundled(t, map[string]string{"bundle/free/SKILL.md": "no front matter"}), nil)
	failure, ok := errors.AsType[*Failure](a.Ready(t.Context()))
	if !ok || failure.Refusal.Code != call.ServerDrifted || failure.Lacking || a.State() != Quarantined {
		t.Fatalf("got %v, %s", failure, a.State())
	}
	if a.Front().Skills["free"].Allows("greet") {
		t.Error("a skill that cannot be read allows a tool")
	}
	for _, p := range a.Front().Prompts {
		if _, err := p.Get(t.Context(), &call.Forward{Method: "prompts/get", Principal: "me@local"}); err == nil || !strings.Contains(err.Error(), "free/SKILL.md:1: an Agent Skill needs front matter") {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// A request for a skill that is still being read fails when its context ends.
func TestPromptWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&skillSet{read: make(chan struct{})}).prompt(ctx, "free")
	if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != call.TimedOut || !r.Retryable {
		t.Errorf("got %v", err)
	}
}

// A credential of the skills store is used only for the hosts for which it was set.
func TestStoreCredential(t *testing.T) {
	h := home.At(t.TempDir())
	t.Setenv("AMBIT_HOME", h.Dir()) // so that the system's keyring is not used
	vault := credential.Open(h)
	for ref, hosts := range map[string][]string{"here": {"s3.example.com"}, "there": {"other.example.com"}, "any": nil} {
		s, err := credential.New(credential.Masked, "canary-"+ref, hosts)
		if err != nil {
			t.Fatal(err)
		}
		if err := vault.Set("ambit", ref, s); err != nil {
			t.Fatal(err)
		}
	}
	find := storeCredential(&skill.StoreConfig{Endpoint: "https://s3.example.com"}, &credential.Source{Vault: vault, Environ: func(name string) (string, bool) {
		return "canary-env", name != ""
	}})
	for _, tt := range []struct{ ref, variable, want string }{
		{"here", "", "canary-here"},
		{"any", "", "canary-any"},
		{"there", "", ""},
		{"nothing", "", ""},
		{"nothing", "AWS_ACCESS_KEY_ID", "canary-env"},
		{"there", "AWS_ACCESS_KEY_ID", ""},
	} {
		got, err := find(tt.ref, tt.variable)
		r, refused := errors.AsType[*call.Refusal](err)
		if got != tt.want || refused != (tt.want == "") || refused && (r.Code != call.CredentialMissing || strings.Contains(r.Error(), "canary")) {
			t.Errorf("%s: %q, %v", tt.ref, got, err)
		}
	}
}

// A code bundle serves exactly the skills that its manifest lists.
func TestSkillsOfCode(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"findagent.json": `{"name":"Coded","system_prompt":"You are a program that has skills among its files, and serves them.","kind":"code-bundle",
			"entrypoint":{"path":"src/agent.mjs"},"runtime":{"kind":"node"},"mcp":{"mode":"wrap"},"skills":[{"id":"help","name":"Help"}],"example_prompts":["Go."]}`,
		"src/agent.mjs": "export const handler = () => 1\n", "AGENTS.md": "For people.\n",
		"help/SKILL.md": "---\nname: help\ndescription: Helps.\n---\nHelp them.\n",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := manifest.Load(filepath.Join(dir, "findagent.json"), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	prompts := begin(t, m, nil).Front().Prompts
	if len(prompts) != 1 || prompts[0].Name != "help" {
		t.Fatalf("got %d prompts, want only help", len(prompts))
	}
	if text, err := prompts[0].Get(t.Context(), &call.Forward{Method: "prompts/get", Principal: "ada@local"}); err != nil || !strings.Contains(string(text), "Help them.") {
		t.Errorf("got %s, %v", text, err)
	}
}
