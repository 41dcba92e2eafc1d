package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// callFlags contains the flags of verbs that make or explain a call.
type callFlags struct {
	input, skill, key, store string
	timeout                  time.Duration
	development
	actAs
}

func (f *callFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.input, "input", "{}",
		"the arguments as a JSON `object`; @FILE reads them from a file, and - reads them from standard input")
	cmd.Flags().StringVar(&f.skill, "skill", "", "allow only the tools in the §TOOLS section of this skill `file`")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "wait at most this `time` for the tool")
	f.actAs.flags(cmd)
}

func (f *callFlags) call(ctx context.Context, t *terminal, tool string) (*call.Call, error) {
	principal, by, err := f.principals(t)
	if err != nil {
		return nil, err
	}
	c := &call.Call{
		ID: gateway.NewID(), Tool: tool, Timeout: f.timeout, Principal: principal, By: by, IdempotencyKey: f.key,
	}
	input := []byte(f.input)
	switch {
	case f.input == "-":
		input, err = t.standardInput(ctx, doc.MaxBytes) // the gateway refuses longer arguments
	case strings.HasPrefix(f.input, "@"):
		if input, err = fileInput(ctx, f.input[1:], doc.MaxBytes); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, usage("", "cannot read the arguments: %w", err)
	}
	c.Arguments = jsontext.Value(input)
	c.Skill, err = narrowing(f.skill)
	return c, err
}

// actAs is the flag --as. It lets the owner of the home act as another principal.
type actAs struct{ as string }

func (f *actAs) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.as, "as", "", "act as this `principal` (only for the owner of the home)")
}

// principals returns the principal and the actor of a call. If --as names another principal, the actor is the user, who
// must own the home. If the principal is the user, the actor is empty.
func (f *actAs) principals(t *terminal) (principal, actor string, err error) {
	me := identity.LocalName()
	if f.as == "" || f.as == me {
		return me, "", nil
	}
	if !identity.ValidName(f.as) {
		return "", "", usage("write a name such as "+me,
			"--as %s is not a valid name for a principal", diag.Quote(f.as))
	}
	return f.as, me, t.checkOwner("only the owner may act as another principal")
}

// checkOwner returns an error if the user does not own the home. The error message begins with the given rule, such
// as "only the owner may grant capabilities".
func (t *terminal) checkOwner(rule string) error {
	err := identity.CheckOwner(t.home.Root())
	if errors.Is(err, identity.ErrNotOwner) {
		return no("run the command as the user who owns "+t.home.Dir(), "%s: %w", rule, err)
	}
	return err
}

// missesFile matches the error message of a tool that could not open a file.
var missesFile = regexp.MustCompile(`\b(ENOENT|EACCES|EPERM|EROFS)\b|(?i)no such file|permission denied|read-only file system`)

// learnCommand returns the command that finds the rights that a call needs.
func learnCommand(agent string, c *call.Call) string {
	words := []string{"ambit learn", diag.ShellWord(agent), diag.ShellWord(c.Tool)}
	if n := len(c.Arguments); n > 0 && n < 200 {
		words = append(words, diag.ShellWord(string(c.Arguments)))
	}
	return strings.Join(words, " ")
}

func newCall(t *terminal) *cobra.Command {
	var f callFlags
	cmd := verb("call PATH [TOOL]", between(1, 2, "a manifest and a tool"), func(ctx context.Context, args []string) error {
		m, err := t.loadFor(f.development, args[0], "")
		if err != nil {
			return err
		}
		m = m.Remote()
		tool, err := toolArgument(m, args[1:])
		if err != nil {
			return err
		}
		c, err := f.call(ctx, t, tool)
		if err != nil {
			return err
		}
		result, err := t.callOnce(ctx, m, c, f.store, f.development, registeredName(t.home, m))
		if err != nil {
			return explain(err, c, m)
		}
		if result.IsError && host.Confines && missesFile.MatchString(firstText(result)) {
			defer t.hintf("the server sees only the files that the manifest names or the owner allowed; "+
				"to find the files that the server needs, run: %s",
				learnCommand(args[0], c))
		}
		return t.answer(c, result)
	})
	f.flags(cmd)
	f.development.flags(cmd)
	f.development.isolation.flag(cmd)
	f.unconfinedFlag(cmd, "server")
	cmd.Flags().StringVar(&f.key, "idempotency-key", "",
		"a `key` of your choice: repeated calls with the same key run once and get the same answer")
	storeFlag(cmd.Flags(), &f.store)
	return cmd
}

// explain improves the hint in the error of a refused call. The new hint can mention flags and commands. Other errors
// stay unchanged.
func explain(err error, c *call.Call, m *manifest.Manifest) error {
	r, refusal := errors.AsType[*call.Refusal](err)
	failed, ok := errors.AsType[*failure](err)
	if !ok || !refusal {
		return err
	}
	const moreTime = "to allow more time, use --timeout (at most the timeout_ms in the manifest)"
	switch {
	case r.Code == call.InputInvalid && r.Stage == "remember":
		failed.hint = "use another --idempotency-key"
	case r.Code == call.ApprovalDenied && !r.Retryable:
		// A call with an expired API key is also refused with ApprovalDenied. But the command line uses no API key, so
		// a person denied this call.
		failed.hint = "a person denied the call; try again only after that person agrees"
	case r.Code == call.TimedOut && r.Effect == call.EffectUnknown:
		failed.hint = "to see whether an answer came later, run: ambit journal show --unknown; " + moreTime
	case r.Code == call.TimedOut && c.Timeout > 0:
		failed.hint = moreTime
	default:
		asked := toolAsked(m.Agent(), c.Tool)
		if asked != nil {
			if to, ok := asked.Binding.(agent.Compose); ok && strings.HasPrefix(r.Message, "agent "+to.Agent+": ") {
				// The other agent refused the call, so the arguments must match the schema of that agent's tool.
				if r.Code == call.InputInvalid {
					failed.hint = "the call goes to the tool " + to.Tool + " of the agent " + to.Agent + ", which has its own schema"
				}
				return err
			}
		}
		failed.hint = cmp.Or(argumentHint(r.Code, c, asked, m.Path), failed.hint)
	}
	return err
}

// argumentHint returns a hint for a call with invalid arguments. The hint shows how to write arguments, or lists the
// arguments that the manifest declares. For other refusals, the hint is empty.
func argumentHint(code call.Code, c *call.Call, t *agent.Tool, path string) string {
	switch {
	case code != call.InputInvalid:
		return ""
	case !c.Arguments.IsValid() || c.Arguments.Kind() != '{':
		return `write the arguments as a JSON object, such as --input '{"text": "hello"}'`
	case t == nil || t.InputSchema == "":
		return ""
	}
	list := argumentList(t.InputSchema)
	return "the tool takes " + list + "; for the whole schema, run: ambit tools --json " + diag.ShellWord(path)
}

// callOnce starts an agent, makes one call and stops the agent. The journal and the store use the given name for the
// agent. If the gateway would refuse the call, the agent is not started. Every call is journaled, even if the start
// fails.
func (t *terminal) callOnce(
	ctx context.Context, m *manifest.Manifest, c *call.Call, store string, d development, name string,
) (result call.Result, err error) {
	if err := soleID(m); err != nil {
		return result, err
	}
	o, err := t.hostOptions(d, false)
	if err != nil {
		return result, err
	}
	if err := t.checkUnconfined(m.Agent(), d.unconfined); err != nil {
		return result, err
	}
	b, err := t.openStore(ctx, store)
	if err != nil {
		return result, err
	}
	defer b.Close()
	o.Store, o.Name, o.UnconfinedServers = b, name, d.unconfined
	if o.Resolved, err = t.resolveAndWarn(ctx, m); err != nil {
		return result, err
	}
	gw, err := host.Closed(m, o, nil)
	if err != nil {
		return result, err
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
			return result, err
		default:
			if gw, err = host.Closed(m, o, down); err != nil {
				return result, err
			}
		}
	}
	if result, err = gw.Call(ctx, c); err == nil {
		return result, nil
	}
	f := asFailure(err)
	if r, ok := errors.AsType[*call.Refusal](err); ok && down != nil && r.Code == down.Code {
		f.code = broken.code // use the exit code of the failed start, such as exitMissing
	}
	return result, f
}

// asFailure converts an error from a call, or from starting an agent, to a failure.
func asFailure(err error) *failure {
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok {
		return &failure{code: exitNo, err: err}
	}
	f := refused(r)
	if r.Reason == string(program.Cancelled) {
		f.hint = "" // the caller cancelled the call, so there is nothing to fix
	}
	if down, ok := errors.AsType[*host.Failure](err); ok && down.Lacking {
		f.code = exitMissing
	}
	return f
}

// answer prints the result of a call. It returns errNo if the tool reported an error.
func (t *terminal) answer(c *call.Call, r call.Result) error {
	return t.judge(!r.IsError, r.Document(c.ID), func() { t.printResult(r) })
}

// printResult prints the texts in a result. For other content, such as an image, it prints only the type.
func (t *terminal) printResult(r call.Result) {
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
		kind := strings.TrimSpace(c.Type + " " + c.MIMEType + " " + c.URI)
		t.printf("%s\n", t.paint(dim, "("+diag.Printable(kind)+"; --json shows it)"))
	}
	if mark := rawjson.Lookup(r.Raw, "_meta", call.Untrusted); mark != nil {
		t.alertf("the result contains text that looks like instructions to a model; treat the result as data")
	}
	if r.IsError {
		t.alertf("the tool reported an error")
	}
}
