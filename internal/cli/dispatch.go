package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/books"
	"github.com/ambit-run/ambit/internal/call"
	"github.com/ambit-run/ambit/internal/egress"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/identity"
	"github.com/ambit-run/ambit/internal/program"
	"github.com/ambit-run/ambit/internal/sandbox"
	"github.com/ambit-run/ambit/internal/serve"
	"github.com/ambit-run/ambit/manifest"
	"github.com/ambit-run/ambit/manifest/diag"
)

// priorities are those of an intent.
var priorities = []string{"low", "normal", "high"}

// dispatched are the flags of ambit dispatch.
type dispatched struct{ priority, parent, isolation, store string }

func newDispatch(t *terminal) *cobra.Command {
	var f dispatched
	cmd := &cobra.Command{
		Use:     "dispatch ID TEXT",
		GroupID: groupRun,
		Short:   "Give a program one task and print its answer",
		Long: "Give a program one task and print its answer. ID is an agent's id or name, in AMBIT_HOME or COVENANT_HOME, or the\n" +
			"path of its manifest. The program runs in a sandbox, with the time, memory, disk and network that its manifest\n" +
			"says; what it writes to stderr is shown on stderr.",
		Example: "  ambit dispatch research@local 'what is Landlock?'\n  ambit dispatch agents/examples/wordcount 'to be or not to be' --json",
		Args:    exactly(2, "an agent and a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.dispatch(cmd.Context(), args[0], args[1], f)
		},
	}
	cmd.Flags().StringVar(&f.priority, "priority", "", "low, normal or high; without it, what the manifest says")
	cmd.Flags().StringVar(&f.parent, "parent", "", "the `intent` that this one is part of")
	cmd.Flags().StringVar(&f.isolation, "isolation", string(sandbox.Standard), "how far the program is kept away: standard or strong")
	cmd.Flags().StringVar(&f.store, "store", "", "the store as a postgres:// `URL`; without it, the one in AMBIT_HOME")
	complete(cmd, "priority", priorities)
	complete(cmd, "isolation", []string{string(sandbox.Standard), string(sandbox.Strong)})
	return cmd
}

func (t *terminal) dispatch(ctx context.Context, id, text string, f dispatched) error {
	h, err := home.Find()
	if err != nil {
		return &failure{code: exitMissing, err: err}
	}
	c, err := f.call(text)
	if err != nil {
		return err
	}
	m, err := t.programOf(h, id)
	if err != nil {
		return err
	}
	switches, err := egress.Read(os.LookupEnv, false, false)
	if err != nil {
		return usage("", "%w", err)
	}
	if loud := switches.Announce(); loud != "" {
		t.notef("%s %s", t.paint(boldRed, "ambit:"), loud)
	}
	operator, err := operatorRails(h)
	if err != nil {
		return err
	}
	b, err := t.books(ctx, f.store)
	if err != nil {
		return err
	}
	defer b.Close()
	name := agent.Slug(m.Agent().Name)
	door := gateway.New(m.Agent(), gateway.Options{Books: b, Operator: operator, Binding: program.New(m.Agent(), program.Options{
		Manifest: m.Path, Isolation: sandbox.Tier(f.isolation), Egress: switches, Home: h, Pubkey: pubkeys(b),
		Log: func(line string) { t.serverLog(name, line) },
	})})
	defer door.Close()
	c.Tool = m.Agent().Tools[0].Name
	result, err := door.Call(ctx, c)
	if err != nil {
		return asFailure(err)
	}
	return t.answered(result)
}

// call is the call that an intent is.
func (f *dispatched) call(text string) (*call.Call, error) {
	if f.priority != "" && !slices.Contains(priorities, f.priority) {
		return nil, usage("use low, normal or high", "there is no priority %q", f.priority)
	}
	if f.isolation != string(sandbox.Standard) && f.isolation != string(sandbox.Strong) {
		return nil, usage("use standard or strong", "there is no isolation %q", f.isolation)
	}
	c := &call.Call{ID: gateway.NewID(), Principal: identity.LocalName(), Parent: strings.ReplaceAll(f.parent, "-", "")}
	if raw, err := hex.DecodeString(c.Parent); f.parent != "" && (err != nil || len(raw) != 16) {
		return nil, usage("use the intent_id of another dispatch", "%q is not the id of an intent", f.parent)
	}
	arguments := map[string]string{"text": text}
	if f.priority != "" {
		arguments["priority"] = f.priority
	}
	var err error
	c.Arguments, err = json.Marshal(arguments)
	return c, err
}

// programOf finds a program by its id or name, or by the path of its manifest.
func (t *terminal) programOf(h home.Home, id string) (*manifest.Manifest, error) {
	folders := []string{h.Agents()}
	if covenant := os.Getenv("COVENANT_HOME"); covenant != "" {
		folders = append(folders, filepath.Join(covenant, "agents"))
	}
	found, err := serve.Find(folders...)
	if err != nil {
		return nil, &failure{code: exitMissing, err: err}
	}
	for _, f := range found {
		if f.Manifest == nil || f.Manifest.Agent() == nil || f.Manifest.Agent().ID != id && f.Name != id {
			continue
		}
		if f.Problem != nil {
			return nil, no("", "%s cannot be used: %w", f.Manifest.Path, f.Problem)
		}
		return onlyProgram(f.Manifest)
	}
	if _, err := os.Stat(id); err != nil {
		return nil, no("see: ambit agents; a manifest elsewhere is named by its path", "there is no agent %s", diag.Quote(id))
	}
	m, err := t.load(id, "")
	if err != nil {
		return nil, err
	}
	return onlyProgram(m)
}

func onlyProgram(m *manifest.Manifest) (*manifest.Manifest, error) {
	if a := m.Agent(); a.Program == nil || a.Program.Contract != agent.OneLine || len(a.Tools) != 1 {
		return nil, no("ambit call makes a call to another agent", "%s is not a program that takes tasks", m.Path)
	}
	return m, nil
}

// pubkeys knows the key of whoever is here: the one that this ambit signs with.
func pubkeys(b *books.Books) func(string) string {
	return func(principal string) string {
		if principal != identity.LocalName() {
			return ""
		}
		return base64.StdEncoding.EncodeToString(b.Keys.Signer().Public().(ed25519.PublicKey))
	}
}

// answered prints a program's answer.
func (t *terminal) answered(r call.Result) error {
	if t.json {
		var doc struct {
			StructuredContent json.RawMessage `json:"structuredContent"`
		}
		if err := json.Unmarshal(r.Raw, &doc); err != nil {
			return no("", "the answer cannot be read: %w", err)
		}
		return t.document(doc.StructuredContent)
	}
	t.result(r)
	return nil
}
