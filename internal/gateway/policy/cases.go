package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pelletier/go-toml/v2"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// Suite is a file with test cases for rules. docs/policy.md describes the format.
type Suite struct {
	// Policy is the path of the policy file, relative to the suite's folder. If Policy is empty, the cases test the
	// user's policy.
	Policy string `toml:"policy"`
	// Scopes maps scopes to tools. It takes precedence over the user's config.toml and the catalogue.
	Scopes Scopes `toml:"scopes"`
	// Time is the time of the call for cases that do not set their own time.
	Time  time.Time `toml:"time"`
	Cases []Case    `toml:"case"`
}

// Case is a call and its expected outcome.
type Case struct {
	Name    string `toml:"name"`
	Agent   string `toml:"agent"`
	Dialect string `toml:"dialect"`
	// ID is the id of the manifest. Rules can read the id as principal.id.
	ID string `toml:"id"`
	// Tool is <server>/<tool>, as in Tool::"…".
	Tool       string `toml:"tool"`
	SideEffect string `toml:"side_effect"`
	Caller     string `toml:"caller"`
	// Groups, Issuer, ACR and AMR are the caller's properties from the credential. See [identity.Attributes].
	Groups []string `toml:"groups"`
	Issuer string   `toml:"issuer"`
	ACR    string   `toml:"acr"`
	AMR    []string `toml:"amr"`
	Skill  string   `toml:"skill"`
	// Arguments is a JSON object, as a client would send it.
	Arguments   string                `toml:"arguments"`
	Annotations map[types.String]bool `toml:"annotations"`
	Time        time.Time             `toml:"time"`
	// Expect is allow or deny. If Code is set, at least one reason for a denial must have that code. If Rule is set, at
	// least one reason must mention the rule with that @id.
	Expect string `toml:"expect"`
	Code   string `toml:"code"`
	Rule   string `toml:"rule"`
}

// Outcome is the result of a case.
type Outcome struct {
	Name     string        `json:"name"`
	OK       bool          `json:"ok"`
	Expected string        `json:"expected"`
	Got      string        `json:"got"`
	Problem  string        `json:"problem,omitempty"`
	Reasons  []call.Reason `json:"reasons"`
}

// ReadSuite reads a file with test cases. The error lists every problem.
func ReadSuite(file string) (*Suite, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if ext := strings.ToLower(filepath.Ext(file)); ext == ".yaml" || ext == ".yml" || ext == ".json" {
		return nil, fmt.Errorf("%s: test cases are written in TOML, not in YAML or JSON: each case starts with [[case]]", file)
	}
	s, err := ParseSuite(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if s.Policy != "" && !filepath.IsAbs(s.Policy) {
		s.Policy = filepath.Join(filepath.Dir(file), s.Policy)
	}
	return s, nil
}

// ParseSuite parses test cases. The error lists every problem.
func ParseSuite(text []byte) (*Suite, error) {
	var s Suite
	if err := toml.NewDecoder(strings.NewReader(string(text))).DisallowUnknownFields().Decode(&s); err != nil {
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok {
			var problems []error
			for _, e := range strict.Errors {
				row, _ := e.Position()
				problems = append(problems, fmt.Errorf("line %d: there is no setting %s", row, strings.Join(e.Key(), ".")))
			}
			return nil, list(problems)
		}
		return nil, plainTOML(err)
	}
	var problems []error
	for i := range s.Cases {
		if problem := s.Cases[i].check(); problem != nil {
			problems = append(problems, fmt.Errorf("case %d (%s): %w", i+1, s.Cases[i].Name, problem))
		}
	}
	if len(s.Cases) == 0 {
		problems = append(problems, errors.New("the file contains no [[case]]"))
	}
	return &s, list(problems)
}

// list joins problems into one error on one line.
func list(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

var wrongType = regexp.MustCompile(`cannot decode TOML (\w+) into .* of type (\S+)$`)

// plainTOML returns an error of the TOML library with its line, and without the names of Go types.
func plainTOML(err error) error {
	e, ok := errors.AsType[*toml.DecodeError](err)
	if !ok {
		return err
	}
	line, _ := e.Position()
	message := strings.TrimPrefix(e.Error(), "toml: ")
	if m := wrongType.FindStringSubmatch(message); m != nil {
		wanted := "a " + m[2]
		switch {
		case strings.HasPrefix(m[2], "[]"):
			wanted = "a list"
		case strings.HasPrefix(m[2], "map["), strings.Contains(m[2], "."):
			wanted = "a table"
		}
		message = fmt.Sprintf("%s has a value of the type %s, but must be %s", strings.Join(e.Key(), "."), m[1], wanted)
	}
	return fmt.Errorf("line %d: %s", line, message)
}

func (c *Case) check() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Agent == "" {
		wrong("agent is missing")
	}
	if !slices.Contains(agent.Dialects, agent.Dialect(c.Dialect)) {
		wrong("there is no dialect %q", c.Dialect)
	}
	if at := strings.LastIndexByte(c.Tool, '/'); at <= 0 || at == len(c.Tool)-1 {
		wrong("tool must be <server>/<tool>, not %q", c.Tool)
	}
	if c.SideEffect != "" && !slices.Contains(agent.SideEffects, agent.SideEffect(c.SideEffect)) {
		wrong("there is no side effect %q", c.SideEffect)
	}
	if c.Expect != "allow" && c.Expect != "deny" {
		wrong("expect must be allow or deny, not %q", c.Expect)
	}
	if v := jsontext.Value(c.Arguments); c.Arguments != "" && (!v.IsValid() || v.Kind() != '{') {
		wrong("arguments are not a JSON object")
	}
	for name := range c.Annotations {
		if annotations(&agent.Annotations{})[name] == nil {
			wrong("there is no annotation %q", name)
		}
	}
	return list(problems)
}

// Run evaluates every case with the policy file of the suite. If the suite does not specify a file, Run uses o.File.
func (s *Suite) Run(o Options) []Outcome {
	if s.Policy != "" {
		o.File = s.Policy
	}
	in := Open(o).current.Load()
	merged := Scopes{}
	for _, from := range []Scopes{in.scopes, s.Scopes} {
		for server, scopes := range from {
			if merged[server] == nil {
				merged[server] = map[string][]string{}
			}
			maps.Copy(merged[server], scopes)
		}
	}
	in.scopes = merged
	outcomes := make([]Outcome, len(s.Cases))
	for i := range s.Cases {
		outcomes[i] = s.Cases[i].run(in, o, s.Time)
	}
	return outcomes
}

func (c *Case) run(in *snapshot, o Options, at time.Time) Outcome {
	if !c.Time.IsZero() {
		at = c.Time
	}
	if at.IsZero() {
		at = time.Now()
	}
	o.Now = func() time.Time { return at }
	a, t, k := c.call()
	// A case names no manifest, so its agent requests every scope of the tool.
	server := ServerOf(c.Agent, t)
	a.Requirements = []agent.Requirement{{Server: server, Scopes: in.scopes.scopesCovering(in.catalogue, server, t.Name)}}
	out := Outcome{Name: c.Name, Expected: c.Expect, Got: "allow", Reasons: []call.Reason{}}
	out.Reasons = append(out.Reasons, in.judge(context.Background(), o, a, c.Agent, t, k)...)
	codes, rules := []string{}, ""
	for _, r := range out.Reasons {
		if !r.Allowed {
			out.Got = "deny"
			codes = append(codes, string(r.Code))
		}
		rules += r.Detail + "\n"
	}
	switch {
	case out.Got != c.Expect:
		out.Problem = fmt.Sprintf("expected %s, got %s", c.Expect, out.Got)
	case c.Code != "" && !slices.Contains(codes, c.Code):
		out.Problem = fmt.Sprintf("expected the code %s, got %s", c.Code, strings.Join(codes, " "))
	case c.Rule != "" && !strings.Contains(rules, fmt.Sprintf("%q", c.Rule)):
		out.Problem = fmt.Sprintf("the rule %q is not among the reasons", c.Rule)
	}
	out.OK = out.Problem == ""
	return out
}

// namedSkill is a skill that allows every tool. The value is the name of the skill.
type namedSkill string

func (n namedSkill) Allows(string) bool { return true }
func (n namedSkill) Name() string       { return string(n) }

// call returns the agent, the tool and the call that a case describes.
func (c *Case) call() (*agent.Agent, *agent.Tool, *call.Call) {
	at := strings.LastIndexByte(c.Tool, '/')
	a := &agent.Agent{Dialect: agent.Dialect(c.Dialect), ID: c.ID, Name: c.ID}
	t := &agent.Tool{Name: c.Tool[at+1:], SideEffect: agent.SideEffect(c.SideEffect)}
	t.Binding = agent.OnServer{Alias: c.Tool[:at]}
	for name, hint := range c.Annotations {
		*annotations(&t.Annotations)[name] = &hint
	}
	k := &call.Call{Tool: t.Name, Principal: c.Caller, Arguments: jsontext.Value(c.Arguments)}
	k.Attributes = &identity.Attributes{Issuer: c.Issuer, Groups: c.Groups, ACR: c.ACR, AMR: c.AMR}
	if c.Skill != "" {
		k.Skill = namedSkill(c.Skill)
	}
	return a, t, k
}
