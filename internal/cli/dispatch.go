package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// dispatchFlags are the flags of ambit dispatch.
type dispatchFlags struct {
	priority, parent, store string
	isolation               isolationFlag
	actAs
}

func newDispatch(t *terminal) *cobra.Command {
	var f dispatchFlags
	cmd := &cobra.Command{
		Use:     "dispatch ID TEXT",
		GroupID: groupRun,
		Short:   "Give a program one task and print its answer",
		Long: "Give a program one task and print its answer. ID is an agent's id or name, in AMBIT_HOME or COVENANT_HOME, or the\n" +
			"path of its manifest. The program runs in a sandbox, with the time, memory, disk and network that its manifest\n" +
			"says; what it writes to stderr is shown on stderr. With --store the task goes into the queue that workers share\n" +
			"(ambit worker), and one of them does it. An interrupt cancels it.",
		Example: "  ambit dispatch research@local 'what is Landlock?'\n  ambit dispatch agents/examples/wordcount 'to be or not to be' --json",
		Args:    exactly(2, "an agent and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.dispatch(cmd.Context(), args[0], args[1], &f)
		},
	}
	cmd.Flags().StringVar(&f.priority, "priority", "", "low, normal or high; without it, what the manifest says")
	cmd.Flags().StringVar(&f.parent, "parent", "", "the `intent` that this one is part of")
	f.flags(cmd)
	storeFlag(cmd.Flags(), &f.store)
	f.isolation.flag(cmd)
	complete(cmd, "priority", dispatch.Priorities)
	return cmd
}

// isolationFlag chooses the isolation tier of programs.
type isolationFlag struct{ tier string }

// noIsolation turns isolation off.
const noIsolation = "none"

func (i *isolationFlag) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&i.tier, "isolation", string(sandbox.Standard), "how far programs are kept away: standard or strong; none is for trusted local development")
	complete(cmd, "isolation", []string{string(sandbox.Standard), string(sandbox.Strong), noIsolation})
}

// apply sets the tier in the options, and warns loudly if it is none.
func (i *isolationFlag) apply(t *terminal, o *host.Options, production bool) error {
	switch i.tier {
	case "": // the verb has no such flag
		return nil
	case string(sandbox.Standard), string(sandbox.Strong):
		o.Isolation = sandbox.Tier(i.tier)
		return nil
	case noIsolation:
	default:
		return usage("use standard, strong or none", "there is no isolation %q", i.tier)
	}
	if production {
		return usage("leave it out", "--production does not go with --isolation none")
	}
	t.alertf("programs run WITHOUT isolation: they can do whatever you can, and no limit but time holds. For trusted local development only.")
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
	m, err := t.programOf(o.Home, id)
	if err != nil {
		return err
	}
	b, err := t.openStore(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	request.Agent, request.Name = m.Agent(), registered(o.Home, m)
	desk := dispatch.Options{Store: b, URL: f.store, Log: t.logf}
	if f.store == "" {
		o.Books, o.Name = b, request.Name
		o.Log = func(_, line string) { t.serverLog(request.Name, line) }
		a := host.Start(ctx, m, o)
		defer a.Close()
		if err := a.Ready(ctx); err != nil {
			return asFailure(err)
		}
		desk.Gateways = oneAgent{a}
	}
	return t.ask(ctx, desk, *request)
}

// ask dispatches one intent and prints the answer.
func (t *terminal) ask(ctx context.Context, o dispatch.Options, r dispatch.Request) error {
	d, err := dispatch.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		d.Close(last)
	}()
	i, err := d.Call(ctx, r, func(i *dispatch.Intent) { t.about(i, r.Agent) })
	if err != nil {
		return asFailure(err)
	}
	if i.Refusal != nil {
		return asFailure(i.Refusal)
	}
	return t.answered(i)
}

// closeTime bounds the shutdown of a desk.
const closeTime = 5 * time.Second

// about prints notes on an intent that waits.
func (t *terminal) about(i *dispatch.Intent, a *agent.Agent) {
	switch {
	case i.State == dispatch.NoWorker:
		t.notef("%s no worker that is running has %s with the digest %s: the intent %s waits; start one with ambit worker",
			t.paint(boldRed, "ambit:"), diag.Printable(i.Agent), i.Digest, dispatch.UUID(i.ID))
	case i.State == dispatch.Queued && i.OverBudget:
		t.alertf("%s has used its %d credits of this hour: this runs at low priority", diag.Printable(i.Agent), a.Settlement.CreditsPerHour)
	}
}

// request returns the intent that the flags describe.
func (f *dispatchFlags) request(t *terminal, text string) (*dispatch.Request, error) {
	if f.priority != "" && !slices.Contains(dispatch.Priorities, f.priority) {
		return nil, usage("use low, normal or high", "there is no priority %q", f.priority)
	}
	principal, by, err := f.who(t)
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

// oneAgent gives a desk the gateway of the one agent that a verb started.
type oneAgent struct{ of *host.Agent }

func (o oneAgent) Digests() []string { return []string{o.of.Manifest().Agent().Digest} }

func (o oneAgent) Open(digest string) (dispatch.Gateway, func(), bool) {
	return o.of.Gateway(), func() {}, digest == o.of.Manifest().Agent().Digest
}

// programFolders returns the folders to search for programs.
func programFolders(h home.Home) []string {
	folders := []string{h.Agents()}
	if covenant := os.Getenv("COVENANT_HOME"); covenant != "" {
		folders = append(folders, filepath.Join(covenant, "agents"))
	}
	return folders
}

// programOf finds a program by its id or name, or by the path of its manifest.
func (t *terminal) programOf(h home.Home, id string) (*manifest.Manifest, error) {
	found, err := daemon.Find(programFolders(h)...)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f daemon.Found) bool { return f.Manifest == nil || f.Manifest.Agent() == nil })
	// An id takes precedence, as in the daemon: a folder can have any name.
	f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Manifest.Agent().ID == id })
	if f == nil {
		f = daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == id })
	}
	if f != nil && f.Problem != nil {
		return nil, no("", "%s cannot be used: %w", f.Manifest.Path, f.Problem)
	}
	if f != nil {
		return onlyProgram(f.Manifest)
	}
	if _, err := os.Stat(id); err != nil {
		return nil, no("see: ambit agents; a manifest elsewhere is named by its path", "there is no agent %s", diag.Quote(id))
	}
	m, err := t.load(id, "")
	if err != nil {
		return nil, err
	}
	if err := soleID(m); err != nil {
		return nil, err
	}
	return onlyProgram(m)
}

func onlyProgram(m *manifest.Manifest) (*manifest.Manifest, error) {
	if !dispatch.TakesIntents(m.Agent()) {
		return nil, no("ambit call makes a call to another agent", "%s is not a program that takes tasks", m.Path)
	}
	return m, nil
}

// answered prints a program's answer.
func (t *terminal) answered(i *dispatch.Intent) error {
	if !t.json {
		t.result(*i.Result)
		return nil
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
	return t.document(doc)
}

var _ dispatch.Gateways = oneAgent{}
