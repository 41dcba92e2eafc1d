package cli

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

type dispatchFlags struct {
	priority, parent, store, file string
	isolation                     isolationFlag
	actAs
}

func newDispatch(t *terminal) *cobra.Command {
	var f dispatchFlags
	what := func(cmd *cobra.Command, args []string) error {
		if f.file != "" {
			return exactly(1, "an agent, with the task in --file")(cmd, args)
		}
		return exactly(2, "an agent and the text of a task")(cmd, args)
	}
	cmd := verb("dispatch ID TEXT", what, func(ctx context.Context, args []string) error {
		text, err := f.text(ctx, t, args[1:])
		if err != nil {
			return err
		}
		return t.dispatch(ctx, args[0], text, &f)
	})
	cmd.Flags().StringVar(&f.file, "file", "", "read the text of the task from a `file`; - reads it from standard input")
	cmd.Flags().StringVar(&f.priority, "priority", "", "low, normal or high (default: the priority in the manifest)")
	cmd.Flags().StringVar(&f.parent, "parent", "", "the id of the `intent` that this new intent is a part of")
	f.flags(cmd)
	storeFlag(cmd.Flags(), &f.store)
	f.isolation.flag(cmd)
	complete(cmd, "priority", dispatch.Priorities)
	return cmd
}

// text returns the text of the task: the contents of the file that --file names, or the argument.
func (f *dispatchFlags) text(ctx context.Context, t *terminal, args []string) (string, error) {
	switch f.file {
	case "":
		return args[0], nil
	case "-":
		text, err := t.standardInput(ctx, doc.MaxBytes) // the queue refuses longer texts
		if err != nil {
			return "", usage("", "cannot read the task: %w", err)
		}
		return string(text), nil
	}
	text, err := fileInput(ctx, f.file, doc.MaxBytes)
	return string(text), err
}

// isolationFlag is the flag --isolation. It chooses how strongly programs are isolated.
type isolationFlag struct{ tier string }

// noIsolation is the value of --isolation that turns the sandbox off.
const noIsolation = "none"

func (i *isolationFlag) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&i.tier, "isolation", string(sandbox.Standard),
		"how strongly programs are isolated: standard, strong, or none (only for trusted local development)")
	complete(cmd, "isolation", []string{string(sandbox.Standard), string(sandbox.Strong), noIsolation})
}

// apply sets the isolation tier in the options. If the tier is "none", apply prints a warning, or returns an error in
// production.
func (i *isolationFlag) apply(t *terminal, o *host.Options, production bool) error {
	switch tier := sandbox.Tier(i.tier); {
	case tier == "": // the verb has no flag --isolation
		return nil
	case tier == sandbox.Standard || tier == sandbox.Strong:
		o.Isolation = tier
		return nil
	case tier != noIsolation:
		return usage("use standard, strong or none", "unknown isolation %q", i.tier)
	case production:
		return usage("leave out --isolation none", "--production and --isolation none cannot be combined")
	}
	t.alertf("programs run WITHOUT isolation: they can do everything that you can do, and only the time limit applies. " +
		"Use --isolation none only for trusted local development.")
	o.Unconfined = true
	return nil
}

func (t *terminal) dispatch(ctx context.Context, id, text string, f *dispatchFlags) error {
	request, err := f.request(t, text)
	if err != nil {
		return err
	}
	o, err := t.hostOptions(development{isolation: f.isolation}, false)
	if err != nil {
		return err
	}
	m, err := t.programOf(id)
	if err != nil {
		return err
	}
	b, err := t.openStore(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	request.Agent, request.Name = m.Agent(), registeredName(o.Home, m)
	options := dispatch.Options{Store: b, URL: f.store, Log: t.troublef}
	if f.store == "" {
		o.Store, o.Name = b, request.Name
		o.Log = func(_, line string) { t.serverLog(request.Name, line) }
		a := host.Start(ctx, m, o)
		defer a.Close()
		if err := a.Ready(ctx); err != nil {
			return asFailure(err)
		}
		options.Gateways = oneAgent{a}
	}
	return t.ask(ctx, options, *request)
}

// ask queues an intent (a call to a program), waits for the answer and prints the answer.
func (t *terminal) ask(ctx context.Context, o dispatch.Options, r dispatch.Request) error {
	d, err := dispatch.Open(ctx, o)
	if err != nil {
		return err
	}
	defer closeQueue(ctx, d, closeTime)
	i, err := d.Call(ctx, r, func(i *dispatch.Intent) {
		name := diag.Printable(i.Agent)
		switch {
		case i.State == dispatch.NoWorker:
			t.alertf("no running worker has %s with the digest %s, so the intent %s waits; to start a worker, run: ambit worker",
				name, i.Digest, dispatch.UUID(i.ID))
		case i.State == dispatch.Queued && i.OverBudget:
			credits := r.Agent.Settlement.CreditsPerHour
			t.alertf("%s has used its %d credits for this hour, so this intent runs at low priority", name, credits)
		}
	})
	if err == nil && i.Refusal != nil {
		err = i.Refusal
	}
	if err != nil {
		return asFailure(err)
	}
	return t.answered(i)
}

// closeTime is the maximum time for shutting down a queue.
const closeTime = 5 * time.Second

// request returns a dispatch request for a task with the given text. The flags set the priority, parent and principal.
func (f *dispatchFlags) request(t *terminal, text string) (*dispatch.Request, error) {
	if f.priority != "" && !slices.Contains(dispatch.Priorities, f.priority) {
		return nil, usage("use low, normal or high", "there is no priority %q", f.priority)
	}
	principal, by, err := f.principals(t)
	if err != nil {
		return nil, err
	}
	r := &dispatch.Request{Text: text, Priority: dispatch.Priority(f.priority), Principal: principal, By: by}
	if f.parent != "" {
		parent, ok := dispatch.ParseID(f.parent)
		if !ok {
			return nil, usage("use the intent_id of another dispatch", "%s is not the id of an intent", diag.Quote(f.parent))
		}
		r.Parent = parent
	}
	return r, nil
}

// oneAgent implements dispatch.Gateways for a verb that starts a single agent.
type oneAgent struct{ of *host.Agent }

func (o oneAgent) Digests() []string { return []string{o.of.Manifest().Agent().Digest} }

func (o oneAgent) Open(digest string) (dispatch.Gateway, func(), bool) {
	return o.of.Gateway(), func() {}, digest == o.of.Manifest().Agent().Digest
}

// programFolders returns the folders of installed programs.
func programFolders(h home.Home) []string { return withCovenant(h.Agents()) }

// programOf returns the manifest of the program with the given id, name or path.
func (t *terminal) programOf(id string) (*manifest.Manifest, error) {
	found, err := agentsIn(manifest.Options{}, programFolders(t.home)...)
	if err != nil {
		return nil, err
	}
	// Look for an id before a name, because the name of a folder could be the id of another program. The daemon has the
	// same rule.
	f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Manifest.Agent().ID == id })
	if f == nil {
		f = daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == id })
	}
	var m *manifest.Manifest
	if f != nil {
		if m = f.Manifest; f.Problem != nil {
			return nil, no("", "%s cannot be used: %w", m.Path, f.Problem)
		}
	} else {
		if _, err := os.Stat(id); err != nil {
			return nil, no("give the name of an agent or the path of a manifest; to list the agents, run: ambit agents",
				"there is no agent %s", diag.Quote(id))
		}
		if m, err = t.load(id, ""); err == nil {
			err = soleID(m)
		}
		if err != nil {
			return nil, err
		}
	}
	if !dispatch.TakesIntents(m.Agent()) {
		return nil, no("to call a tool, run: ambit call PATH TOOL", "%s is not a program that takes tasks", m.Path)
	}
	return m, nil
}

// answered prints the answer of a program. It returns errNo if the program reported an error.
func (t *terminal) answered(i *dispatch.Intent) error {
	if !t.json {
		return t.judge(!i.Result.IsError, nil, func() { t.printResult(*i.Result) })
	}
	var doc struct {
		IntentID   string   `json:"intent_id"`
		Status     string   `json:"status"`
		Text       string   `json:"text"`
		Sources    []string `json:"sources"`
		OverBudget bool     `json:"over_budget,omitempty"`
	}
	if err := json.Unmarshal(i.Answer(), &doc); err != nil {
		return no("", "the answer cannot be read: %w", err)
	}
	doc.OverBudget = i.OverBudget
	return t.judge(!i.Result.IsError, doc, nil)
}
