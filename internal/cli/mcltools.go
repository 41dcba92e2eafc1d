package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// Users of Matrix agents know the program mcl-tools. If ambit is started as mcl-tools, it accepts the verbs and flags
// of mcl-tools, and uses the same exit codes:
//
//	0  ok
//	1  the manifest, a server or the call failed
//	2  wrong usage, a bad URI, or the gateway refused the call
//	3  the tool reported an error
//
// The verbs use the implementation of ambit's own verbs, including all checks.
const (
	mclFailed    = 1
	mclNo        = 2
	mclToolError = 3
)

const mclUsage = `usage: mcl-tools VERB -manifest FILE [FLAGS]

  verify                                          prove digests and tools
  list-servers [-json]                            the declared servers
  list-tools [-json]                              the declared tools with their URIs
  describe-tool -uri URI                          one tool, as JSON
  call -uri URI [-args JSON] [-timeout SECONDS]   one call, as JSON
`

// mcl contains the flags of an mcl-tools command line.
type mcl struct {
	t                   *terminal
	manifest, uri, args string
	timeout             float64
	json                bool
}

// mclTools runs an mcl-tools command line and returns the exit code.
func mclTools(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	c := &mcl{t: newTerminal(in, out, errOut)}
	run, err := c.parse(args)
	if err != nil {
		fmt.Fprintf(errOut, "mcl-tools: %v\n\n%s", err, mclUsage)
		return mclNo
	}
	var m *manifest.Manifest
	if c.t.home, err = home.Find(); err == nil {
		m, err = c.t.load(c.manifest, string(agent.Matrix))
	}
	if err == nil {
		err = run(ctx, m)
	}
	if err != nil && !failureOf(err).printed {
		c.t.fail(failureOf(err))
	}
	if flushErr := c.t.flush(); err == nil {
		err = flushErr
	}
	// The call is made in the stage "act". A refusal in any other stage means that nothing was started.
	refusal, ok := errors.AsType[*call.Refusal](err)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTool):
		return mclToolError
	case ok && refusal.Stage != "act":
		return mclNo
	}
	return mclFailed
}

var errTool = &failure{err: errors.New("the tool reported an error"), printed: true}

func (c *mcl) parse(args []string) (run func(context.Context, *manifest.Manifest) error, err error) {
	if len(args) == 0 {
		return nil, errors.New("the verb is missing")
	}
	verb := args[0]
	set := flag.NewFlagSet("mcl-tools", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&c.manifest, "manifest", "", "")
	switch verb {
	case "verify":
		run = func(ctx context.Context, m *manifest.Manifest) error { return c.t.verify(ctx, m, false, nil) }
	case "list-servers":
		run = c.listServers
	case "list-tools", "list":
		run = c.listTools
	case "describe-tool", "describe":
		run = c.describe
	case "call":
		run = c.call
		set.StringVar(&c.args, "args", "{}", "")
		set.Float64Var(&c.timeout, "timeout", 0, "")
	default:
		return nil, fmt.Errorf("there is no verb %q", verb)
	}
	lists := strings.HasPrefix(verb, "list")
	c.t.json = !lists && verb != "verify"
	if lists {
		set.BoolVar(&c.json, "json", false, "")
	} else if c.t.json {
		set.StringVar(&c.uri, "uri", "", "")
	}
	if err := set.Parse(args[1:]); err != nil {
		return nil, err
	}
	switch {
	case set.NArg() > 0:
		return nil, fmt.Errorf("%s takes only flags, but got %q", verb, set.Arg(0))
	case c.manifest == "":
		return nil, errors.New("-manifest is missing")
	case c.t.json && !strings.Contains(c.uri, "://"):
		return nil, errors.New("-uri must be a matrix://tool/ URI")
	case c.timeout < 0 || c.timeout > 24*60*60:
		return nil, errors.New("-timeout must be a number of seconds, at most 86400")
	}
	return run, nil
}

func (c *mcl) listServers(_ context.Context, m *manifest.Manifest) error {
	type report struct {
		Alias         string `json:"alias"`
		Transport     string `json:"transport"`
		Version       string `json:"version"`
		PackageDigest string `json:"package_digest"`
		Tools         int    `json:"tools"`
	}
	reports := each(m.Agent().Servers, func(s agent.Server) report {
		r := report{Alias: s.Alias, Transport: string(s.Transport), Version: s.Version, PackageDigest: s.Digest}
		for _, t := range m.Agent().Tools {
			if on, ok := t.Binding.(agent.OnServer); ok && on.Alias == s.Alias {
				r.Tools++
			}
		}
		return r
	})
	if c.json {
		return c.t.document(map[string]any{"servers": reports})
	}
	c.t.table("", each(reports, func(r report) []string {
		return []string{r.Alias, r.Transport, r.Version, r.PackageDigest, count(r.Tools, "tool")}
	}))
	return nil
}

func (c *mcl) listTools(_ context.Context, m *manifest.Manifest) error {
	reports := toolReports(m.Agent(), nil)
	if c.json {
		return c.t.document(map[string]any{"tools": reports})
	}
	for _, r := range reports {
		c.t.printf("%s\n", r.URI)
	}
	return nil
}

// describe prints the declaration of a tool, with the tool's definition from the lock file.
func (c *mcl) describe(ctx context.Context, m *manifest.Manifest) error {
	_, reasons := gateway.New(m.Agent(), gateway.Options{}).Why(ctx, &call.Call{Tool: c.uri})
	if last := reasons[len(reasons)-1]; last.Stage == "resolve" {
		return refused(last.Refusal())
	}
	o, err := c.t.serverOptions(m)
	if err != nil {
		return err
	}
	tool := toolAsked(m.Agent(), c.uri)
	at := slices.IndexFunc(m.Agent().Tools, func(t agent.Tool) bool { return t.URI == tool.URI })
	doc := map[string]any{"tool": toolReports(m.Agent(), nil)[at], "timeout_ms": tool.Timeout.Milliseconds()}
	if locked := o.Lock.Server(m.Agent().ID, tool.URI.Server); locked != nil {
		doc["definition"] = locked.Tools[tool.Name].Definition
	}
	return c.t.document(doc)
}

func (c *mcl) call(ctx context.Context, m *manifest.Manifest) error {
	asked := &call.Call{
		ID: gateway.NewID(), Tool: c.uri, Arguments: jsontext.Value(c.args), Principal: identity.LocalName(),
		Timeout: time.Duration(c.timeout * float64(time.Second)),
	}
	result, err := c.t.callOnce(ctx, m, asked, "", development{}, registeredName(c.t.home, m))
	if err != nil {
		return err
	}
	if err := c.t.document(result.Document(asked.ID)); err != nil {
		return err
	}
	if result.IsError {
		return errTool
	}
	return nil
}
