//go:build unix

package toolserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
)

const canary = "canary-7f3a91c2"

// reported returns everything that a rig and a manager have reported.
func (r *rig) reported(m *Manager, refusals ...*call.Refusal) string {
	var all strings.Builder
	all.WriteString(r.log() + r.progress() + strings.Join(r.processes(), "\n"))
	for _, p := range m.Proofs() {
		p.Tools = nil // the original bytes of the server
		fmt.Fprintf(&all, "%+v", p)
		refusals = append(refusals, p.Refusal)
	}
	for _, refusal := range refusals {
		if refusal != nil {
			fmt.Fprintf(&all, "%+v", *refusal)
		}
	}
	return all.String()
}

func lookup(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

// referring adds arguments with references to a fake server.
func (r *rig) referring() {
	s := r.fake("one", []string{"environment", "crash"}, "--", "--header", "Authorization: Bearer $env:CANARY", "$env:OTHER/x")
	s.ArgRefs = []string{"CANARY"}
	r.o.Lookup = lookup(map[string]string{"CANARY": canary + "$env:CANARY", "OTHER": "other-value"})
}

// checkArguments checks the arguments of a server that [rig.referring] added.
func (r *rig) checkArguments(m *Manager) {
	r.t.Helper()
	result, refusal := r.call(m, "one", "environment", `{}`)
	if refusal != nil {
		r.t.Fatal(refusal)
	}
	// References are not resolved inside a value, or if the manifest does not declare them.
	if got := string(result.Raw); !strings.Contains(got, "--header|Authorization: Bearer "+canary+"$env:CANARY|$env:OTHER/x") {
		r.t.Errorf("the server reports %s", got)
	}
	r.until("the arguments are logged", func() bool { return strings.Count(r.log(), "Bearer $env:CANARY") >= 3 })
	_, refusal = r.call(m, "one", "crash", `{}`)
	if all := r.reported(m, refusal); strings.Contains(all, canary) {
		r.t.Errorf("a credential was leaked:\n%s", all)
	}
}

func TestCredentialsInTheArguments(t *testing.T) {
	r := newRig(t)
	r.referring()
	r.checkArguments(r.proven())
}

func TestCredentialsMissingInTheArguments(t *testing.T) {
	r := newRig(t)
	r.referring()
	r.o.Lookup = lookup(nil)
	m := r.start()
	refused(t, m.Proofs()[0], call.CredentialMissing, "CANARY")
}

func TestCredentialsInTheEnvironment(t *testing.T) {
	r := newRig(t)
	s := r.fake("one", []string{"environment", "crash"})
	s.Env = append(s.Env,
		agent.Setting{Name: "TOKEN", Value: "Bearer $env:CANARY/$env:OTHER", Refs: []string{"CANARY", "OTHER"}},
		agent.Setting{Name: "PLAIN", Value: "$env:HOME/x", Refs: []string{"HOME"}})
	r.o.Lookup = lookup(map[string]string{"CANARY": canary + "$env:OTHER", "OTHER": "second-value", "HOME": "/home/me"})
	t.Setenv("AMBIT_TEST_NOT_DECLARED", "x")
	m := r.proven()
	result, refusal := r.call(m, "one", "environment", `{}`)
	if refusal != nil {
		t.Fatal(refusal)
	}
	env := string(result.Raw)
	// References inside a value are not resolved.
	if !strings.Contains(env, `TOKEN=Bearer `+canary+`$env:OTHER/second-value\n`) || !strings.Contains(env, `PLAIN=/home/me/x`) {
		t.Errorf("the server's environment is %s", env)
	}
	if strings.Contains(env, "NOT_DECLARED") || !strings.Contains(env, "PATH=") {
		t.Errorf("the server's environment is %s", env)
	}
	// The server wrote the values to stderr, to stdout and to its log.
	r.until("the environment is logged", func() bool { return strings.Count(r.log(), "Bearer $env:CANARY") >= 3 })
	_, refusal = r.call(m, "one", "crash", `{}`)
	if all := r.reported(m, refusal); strings.Contains(all, canary) || strings.Contains(all, "second-value") {
		t.Errorf("a credential was leaked:\n%s", all)
	}
	if !strings.Contains(r.log(), "PLAIN=/home/me/x") {
		t.Errorf("a value that is not secret was masked:\n%s", r.log())
	}
}

// If the last output of a server contains its credential, the refusal does not show the credential.
func TestCredentialsInLastWords(t *testing.T) {
	r := newRig(t)
	s := r.fake("one", []string{"echo"}, "-do", "tell-environment")
	s.Env = append(s.Env, agent.Setting{Name: "TOKEN", Value: "$env:CANARY", Refs: []string{"CANARY"}})
	r.o.Lookup = lookup(map[string]string{"CANARY": canary})
	m := r.start()
	refused(t, m.Proofs()[0], call.ServerUnavailable, "TOKEN=$env:CANARY")
	if all := r.reported(m); strings.Contains(all, canary) {
		t.Errorf("a credential was leaked:\n%s", all)
	}
}

func TestCredentialMissing(t *testing.T) {
	r := newRig(t)
	s := r.fake("one", []string{"echo"})
	s.Env = append(s.Env, agent.Setting{Name: "TOKEN", Value: "$env:GITHUB_TOKEN", Refs: []string{"GITHUB_TOKEN"}})
	r.fake("two", []string{"echo"})
	m := r.start()
	p := m.Proofs()[0]
	refused(t, p, call.CredentialMissing, "server one needs GITHUB_TOKEN")
	if !p.Lacking || !strings.Contains(p.Refusal.Hint, "GITHUB_TOKEN") || r.read("one/lives") != "" {
		t.Errorf("proof %+v", p)
	}
	r.works(m, "two")
}

func TestMask(t *testing.T) {
	var s secrets
	if got := s.mask("nothing is known"); got != "nothing is known" {
		t.Errorf("a text without secrets was changed to %q", got)
	}
	s.add("A", "abcdef")
	s.add("LONG", "abcdefgh")
	s.add("SHORT", "1")
	s.add("HOME", "/home/me")
	s.add("KEY", "-----BEGIN-----\nMIIEpAIBAAKC\n-----END-----\n")
	s.add("QUOTED", `pass"word\`)
	for in, want := range map[string]string{
		"x abcdef y":                 "x $env:A y",
		"abcdefgh":                   "$env:LONG", // the longer value is masked, not the value of A
		"exit status 1":              "exit status 1",
		"/home/me/x":                 "/home/me/x",
		"line MIIEpAIBAAKC of a key": "line $env:KEY of a key",
		"aGVsbG86YWJjZGVmZ2gh":       "aGVsbG86$env:LONGgh", // base64 of hello:abcdefgh!
		"hex 6162636465666768":       "hex $env:LONG",
		"x=pass%22word%5c&y":         "x=$env:QUOTED&y",
		`said pass"word\ and ` + strconv.Quote(`pass"word\`): `said $env:QUOTED and "$env:QUOTED"`,
	} {
		if got := s.mask(in); got != want {
			t.Errorf("%q is masked as %q, want %q", in, got, want)
		}
	}
}

// A server cannot reach ambit's files by any path, and cannot inspect or kill ambit.
func TestServerCannotReachUs(t *testing.T) {
	requireContainment(t)
	for _, link := range []bool{false, true} {
		t.Run(fmt.Sprintf("home is a link %t", link), func(t *testing.T) {
			r := newRig(t)
			r.write("real/secrets", canary)
			named := r.path("real")
			if link {
				named = r.path("home")
				if err := os.Symlink(r.path("real"), named); err != nil {
					t.Fatal(err)
				}
			}
			r.o.Home = home.At(named)
			r.fake("one", []string{"read", "write", "uncover", "signal", "echo"})
			m := r.proven()
			if !m.Proofs()[0].Contained {
				t.Fatal("the server is not contained")
			}
			us := strconv.Itoa(os.Getpid())
			for _, tt := range []struct{ what, tool, args string }{
				{"read a secret", "read", fmt.Sprintf(`{"path":%q}`, filepath.Join(named, "secrets"))},
				{"read a secret where it really is", "read", fmt.Sprintf(`{"path":%q}`, r.path("real/secrets"))},
				{"read a secret through its first process", "read", fmt.Sprintf(`{"path":%q}`, "/proc/1/root"+r.path("real/secrets"))},
				{"unmount the cover of the folder", "uncover", fmt.Sprintf(`{"path":%q,"content":"secrets"}`, r.path("real"))},
				{"write to ambit's home", "write", fmt.Sprintf(`{"path":%q,"content":"approved"}`, filepath.Join(named, "approvals"))},
				{"read ambit's environment", "read", `{"path":"/proc/` + us + `/environ"}`},
				{"read ambit's memory map", "read", `{"path":"/proc/` + us + `/maps"}`},
				{"kill ambit", "signal", `{"pid":` + us + `}`},
			} {
				result, refusal := r.call(m, "one", tt.tool, tt.args)
				text := string(result.Raw)
				if refusal != nil || strings.Contains(text, canary) || !strings.Contains(text, "cannot") && !strings.Contains(text, `"text":""`) {
					t.Errorf("the server could %s: %s, %v", tt.what, text, refusal)
				}
			}
			if _, err := os.Stat(r.path("real/approvals")); err == nil {
				t.Error("the server wrote to ambit's home")
			}
			r.works(m, "one")
		})
	}
}

// A server can write a secret that ambit does not know. The secret is redacted in each line of stderr, in the lines of
// stdout that are no MCP messages, in log messages, and in the report of the server's exit.
func TestUnknownSecretsAreRedacted(t *testing.T) {
	unknown := "ghp" + "_x7Kd92LmQp4RtVz8Wb3Ns6Yc1Hf5Jg0AeUoI"
	body := "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
	key := "-----BEGIN " + "PRIVATE KEY-----\n" + body + "\n" + body + "\n-----END " + "PRIVATE KEY-----"
	r := newRig(t)
	s := r.fake("one", []string{"environment"})
	s.Env = append(s.Env, agent.Setting{Name: "PLAIN", Value: "first " + unknown}, agent.Setting{Name: "TEXT", Value: key})
	s = r.fake("two", []string{"environment"}, "-do", "tell-environment")
	s.Env = append(s.Env, agent.Setting{Name: "PLAIN", Value: "first " + unknown}, agent.Setting{Name: "TEXT", Value: key})
	m := r.start()
	if _, refusal := r.call(m, "one", "environment", `{}`); refusal != nil {
		t.Fatal(refusal)
	}
	r.until("the environment is logged", func() bool { return strings.Count(r.log(), "PLAIN=first") >= 4 })
	if all := r.reported(m); strings.Contains(all, unknown) || strings.Contains(all, body) {
		t.Errorf("a secret was leaked:\n%s", all)
	}
}
