package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/manifest"
)

// callFlags are the flags of verbs that make or explain a call.
type callFlags struct {
	input, skill, key, store string
	timeout                  time.Duration
	development
	actAs
}

func (f *callFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.input, "input", "{}", "the arguments as a JSON `object`; @FILE reads a file, - standard input")
	cmd.Flags().StringVar(&f.skill, "skill", "", "a skill `file` whose §TOOLS section narrows what may be called")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "stop waiting after this `time`")
	f.actAs.flags(cmd)
}

func (f *callFlags) call(t *terminal, tool string) (*call.Call, error) {
	principal, by, err := f.who(t)
	if err != nil {
		return nil, err
	}
	c := &call.Call{ID: gateway.NewID(), Tool: tool, Timeout: f.timeout, Principal: principal, By: by, IdempotencyKey: f.key}
	input := []byte(f.input)
	switch {
	case f.input == "-":
		input, err = io.ReadAll(t.in)
	case strings.HasPrefix(f.input, "@"):
		file := f.input[1:]
		if input, err = os.ReadFile(file); err != nil {
			return nil, unreadable(file, err)
		}
	}
	if err != nil {
		return nil, usage("", "cannot read the arguments: %w", err)
	}
	c.Arguments = jsontext.Value(input)
	c.Skill, err = narrowing(f.skill)
	return c, err
}

func newCall(t *terminal) *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:     "call PATH TOOL",
		GroupID: groupRun,
		Short:   "Make one call through the gateway",
		Long:    "Make one call through the gateway: the agent's servers are started and proven, the call is resolved, checked\nand carried out, and its result printed. TOOL is a name or a matrix:// URI.",
		Example: "  ambit call agents/default.json list_directory --input '{\"path\": \".\"}'\n  ambit call agents/default.json matrix://tool/mcp/thinking/sequentialthinking@2026.8.31 --input @thought.json",
		Args:    exactly(2, "a manifest and a tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := t.loadFor(f.development, args[0], "")
			if err != nil {
				return err
			}
			m = m.Remote()
			c, err := f.call(t, args[1])
			if err != nil {
				return err
			}
			result, err := t.callOnce(cmd.Context(), m, c, f.store, f.development)
			if err != nil {
				return explain(err, c, m)
			}
			return t.answer(c, result)
		},
	}
	f.flags(cmd)
	f.development.flags(cmd)
	f.development.isolation.flag(cmd)
	cmd.Flags().StringVar(&f.key, "idempotency-key", "", "a `key` that makes a repeated call the same call: it is made once, and answered alike")
	storeFlag(cmd.Flags(), &f.store)
	return cmd
}

// explain adds a hint for the command line to a refused call.
func explain(err error, c *call.Call, m *manifest.Manifest) error {
	r, refusal := errors.AsType[*call.Refusal](err)
	if failed, ok := errors.AsType[*failure](err); ok && refusal {
		failed.hint = cmp.Or(hintOn(r, c, m), failed.hint)
	}
	return err
}

// hintOn returns a hint for calls from the command line; empty keeps that of the refusal.
func hintOn(r *call.Refusal, c *call.Call, m *manifest.Manifest) string {
	switch {
	case r.Code == call.InputInvalid && r.Stage == "remember":
		return "use another --idempotency-key"
	case r.Code == call.ApprovalDenied && !r.Retryable: // no key ends on a command line
		return "call again once the person who refused it agrees"
	case r.Code == call.TimedOut && r.Effect == call.EffectUnknown:
		return "see whether an answer came: ambit journal show --unknown; " + moreTime
	case r.Code == call.TimedOut && c.Timeout > 0:
		return moreTime
	}
	return aboutArguments(r.Code, c, toolAsked(m.Agent(), c.Tool), m.Path)
}

const moreTime = "for more time: --timeout, within timeout_ms of the manifest"

// aboutArguments is the hint for invalid arguments: how to write them, or which ones the
// tool takes if the manifest declares them.
func aboutArguments(code call.Code, c *call.Call, t *agent.Tool, path string) string {
	switch {
	case code != call.InputInvalid:
		return ""
	case !c.Arguments.IsValid() || c.Arguments.Kind() != '{':
		return `write them as a JSON object, such as --input '{"text": "hello"}'`
	case t == nil || t.InputSchema == "":
		return ""
	}
	return "it takes " + argumentList(t.InputSchema) + "; for the whole schema: ambit tools --json " + diag.ShellWord(path)
}

// callOnce starts an agent for one call. A call that would be refused anyway starts nothing.
// Every call is journaled, also if the agent does not start.
func (t *terminal) callOnce(ctx context.Context, m *manifest.Manifest, c *call.Call, store string, d development) (call.Result, error) {
	if err := soleID(m); err != nil {
		return call.Result{}, err
	}
	o, err := t.hostOptions(d, false)
	if err != nil {
		return call.Result{}, err
	}
	b, err := t.openStore(ctx, store)
	if err != nil {
		return call.Result{}, err
	}
	defer b.Close()
	o.Books, o.Name = b, registered(o.Home, m)
	if o.Resolved, err = t.resolveAndWarn(ctx, m); err != nil {
		return call.Result{}, err
	}
	gw, err := host.Closed(m, o, nil)
	if err != nil {
		return call.Result{}, err
	}
	var broken *failure
	var down *call.Refusal
	if allowed, _ := gw.Why(ctx, c); allowed {
		a, end, err := t.start(ctx, m, o)
		switch {
		case err == nil:
			defer end()
			gw = a.Gateway()
		case !errors.As(err, &broken) || !errors.As(err, &down):
			return call.Result{}, err
		default:
			if gw, err = host.Closed(m, o, down); err != nil {
				return call.Result{}, err
			}
		}
	}
	result, err := gw.Call(ctx, c)
	if err == nil {
		return result, nil
	}
	f := asFailure(err)
	if r, ok := errors.AsType[*call.Refusal](err); ok && down != nil && r.Code == down.Code {
		f.code = broken.code // exitMissing if something is missing here
	}
	return result, f
}

// asFailure converts the error of an agent that did not start, or of a refused call.
func asFailure(err error) *failure {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		return &failure{code: exitNo, err: err}
	}
	f := refused(r)
	if r.Reason == string(program.Cancelled) {
		f.hint = "" // the caller cancelled it
	}
	if down, ok := errors.AsType[*host.Failure](err); ok && down.Lacking {
		f.code = exitMissing
	}
	return f
}

// answer prints the result of a call, and fails if the tool reported an error.
func (t *terminal) answer(c *call.Call, r call.Result) error {
	return t.judge(!r.IsError, r.Document(c.ID), func() { t.result(r) })
}

// result prints the texts of a result, and the type of other content.
func (t *terminal) result(r call.Result) {
	var raw struct {
		Content []struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			MIMEType string `json:"mimeType"`
			URI      string `json:"uri"`
		} `json:"content"`
	}
	if err := json.Unmarshal(r.Raw, &raw); err != nil {
		t.printf("%s\n", diag.Printable(string(r.Raw)))
		return
	}
	for _, c := range raw.Content {
		if c.Type == "text" {
			for line := range strings.SplitSeq(c.Text, "\n") {
				t.printf("%s\n", diag.Printable(line))
			}
			continue
		}
		t.printf("%s\n", t.paint(dim, "("+diag.Printable(strings.TrimSpace(c.Type+" "+c.MIMEType+" "+c.URI))+"; --json shows it)"))
	}
	if r.IsError {
		t.alertf("the tool reports an error")
	}
}
