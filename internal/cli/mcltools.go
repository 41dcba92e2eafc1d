package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
	"github.com/ambit-run/ambit/tooluri"
)

// Started as mcl-tools, the binary takes the verbs that this name promises to
// users of Matrix agents, with their flags and their exit codes:
//
//	0  ok
//	1  the manifest, a server or the call failed
//	2  wrong usage, a bad URI, or the gate said no
//	3  the tool reported an error
//
// They are ambit's own verbs underneath; nothing is allowed here that is not
// allowed there.
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

// mcl is one command line of mcl-tools.
type mcl struct {
	t        *terminal
	verb     string
	manifest string
	uri      string
	args     string
	timeout  float64
	json     bool
}

// mclTools runs one command line of mcl-tools and returns its exit code.
func mclTools(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	c := &mcl{t: newTerminal(in, out, errOut)}
	run, err := c.parse(args)
	if err != nil {
		fmt.Fprintf(errOut, "mcl-tools: %v\n\n%s", err, mclUsage)
		return mclNo
	}
	if c.t.home, err = home.Find(); err == nil {
		err = run(ctx)
	}
	if err != nil && !failureOf(err).printed {
		c.t.fail(failureOf(err))
	}
	if flushErr := c.t.flush(); err == nil {
		err = flushErr
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTool):
		return mclToolError
	case c.saidNo(err):
		return mclNo
	}
	return mclFailed
}

var errTool = &failure{err: errors.New("the tool reported an error"), printed: true}

// saidNo reports whether a call was refused before anything was started.
func (c *mcl) saidNo(err error) bool {
	r, ok := errors.AsType[*call.Refusal](err)
	return ok && r.Stage != "act"
}

func (c *mcl) parse(args []string) (run func(context.Context) error, err error) {
	if len(args) == 0 {
		return nil, errors.New("name a verb")
	}
	set := flag.NewFlagSet("mcl-tools", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&c.manifest, "manifest", "", "")
	c.verb = args[0]
	needsURI := false
	switch c.verb {
	case "verify":
		run = c.verify
	case "list-servers":
		set.BoolVar(&c.json, "json", false, "")
		run = c.listServers
	case "list-tools", "list":
		set.BoolVar(&c.json, "json", false, "")
		run = c.listTools
	case "describe-tool", "describe":
		set.StringVar(&c.uri, "uri", "", "")
		run, needsURI = c.describe, true
	case "call":
		set.StringVar(&c.uri, "uri", "", "")
		set.StringVar(&c.args, "args", "{}", "")
		set.Float64Var(&c.timeout, "timeout", 0, "")
		run, needsURI = c.call, true
	default:
		return nil, fmt.Errorf("there is no verb %q", c.verb)
	}
	if err := set.Parse(args[1:]); err != nil {
		return nil, err
	}
	switch {
	case set.NArg() > 0:
		return nil, fmt.Errorf("%s takes flags only, and got %q", c.verb, set.Arg(0))
	case c.manifest == "":
		return nil, errors.New("-manifest is missing")
	case needsURI && !strings.Contains(c.uri, "://"):
		return nil, errors.New("-uri must be a matrix://tool/ URI")
	case c.timeout < 0 || c.timeout > 24*60*60:
		return nil, errors.New("-timeout is a number of seconds")
	}
	return run, nil
}

// load reads the manifest, which must be of a Matrix agent.
func (c *mcl) load() (*manifest.Manifest, error) { return c.t.load(c.manifest, string(agent.Matrix)) }

func (c *mcl) verify(ctx context.Context) error {
	m, err := c.load()
	if err != nil {
		return err
	}
	return c.t.verify(ctx, m, false)
}

func (c *mcl) listServers(context.Context) error {
	m, err := c.load()
	if err != nil {
		return err
	}
	a := m.Agent()
	type report struct {
		Alias         string `json:"alias"`
		Transport     string `json:"transport"`
		Version       string `json:"version"`
		PackageDigest string `json:"package_digest"`
		Tools         int    `json:"tools"`
	}
	reports, rows := []report{}, [][]string{}
	for _, s := range a.Servers {
		r := report{Alias: s.Alias, Transport: string(s.Transport), Version: s.Version, PackageDigest: s.Digest}
		for i := range a.Tools {
			if on, ok := a.Tools[i].Binding.(agent.OnServer); ok && on.Alias == s.Alias {
				r.Tools++
			}
		}
		reports = append(reports, r)
		rows = append(rows, []string{r.Alias, r.Transport, r.Version, r.PackageDigest, count(r.Tools, "tool")})
	}
	if c.json {
		return c.t.document(map[string]any{"servers": reports})
	}
	c.t.table("", rows)
	return nil
}

func (c *mcl) listTools(context.Context) error {
	m, err := c.load()
	if err != nil {
		return err
	}
	reports := toolReports(m.Agent())
	if c.json {
		return c.t.document(map[string]any{"tools": reports})
	}
	for _, r := range reports {
		c.t.printf("%s\n", r.URI)
	}
	return nil
}

// describe prints the declaration of one tool, and its locked definition.
func (c *mcl) describe(ctx context.Context) error {
	c.t.json = true
	m, err := c.load()
	if err != nil {
		return err
	}
	_, reasons := gateway.New(m.Agent(), gateway.Options{}).Why(ctx, &call.Call{Tool: c.uri})
	if last := reasons[len(reasons)-1]; last.Stage == "resolve" {
		return refused(last.Refusal())
	}
	u, err := tooluri.Parse(c.uri)
	if err != nil {
		return usage("", "%w", err)
	}
	o, err := c.t.serverOptions(m)
	if err != nil {
		return err
	}
	for i, r := range toolReports(m.Agent()) {
		t := &m.Agent().Tools[i]
		if t.URI.Name != u.Name || t.URI.Server != u.Server || t.URI.Namespace != u.Namespace {
			continue
		}
		doc := map[string]any{"tool": r, "timeout_ms": t.Timeout.Milliseconds()}
		if locked := o.Lock.Server(m.Agent().ID, u.Server); locked != nil {
			doc["definition"] = locked.Tools[t.Name].Definition
		}
		return c.t.document(doc)
	}
	return nil
}

func (c *mcl) call(ctx context.Context) error {
	c.t.json = true
	m, err := c.load()
	if err != nil {
		return err
	}
	asked := &call.Call{
		ID: gateway.NewID(), Tool: c.uri, Arguments: jsontext.Value(c.args), Principal: identity.LocalName(),
		Timeout: time.Duration(c.timeout * float64(time.Second)),
	}
	result, err := c.t.callOnce(ctx, m, asked, "", development{})
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
