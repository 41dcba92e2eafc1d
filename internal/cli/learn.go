package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/exec/learn"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// learnFlags contains the flags of "ambit learn".
type learnFlags struct {
	within, hosts []string
	yes           bool
	store         string
	timeout       time.Duration
	development
}

func newLearn(t *terminal) *cobra.Command {
	var f learnFlags
	what := atLeast(1, "an agent")
	cmd := verb("learn AGENT [TOOL [ARGUMENTS]]...", what, func(ctx context.Context, args []string) error {
		work, err := parseWork(args[1:])
		if err != nil {
			return err
		}
		return t.learn(ctx, args[0], work, &f)
	})
	cmd.Flags().StringArrayVar(&f.within, "within", nil,
		"open this `folder` to the servers while ambit learns; can be repeated")
	cmd.Flags().StringArrayVar(&f.hosts, "host", nil,
		"let the servers connect to this `host` while ambit learns; can be repeated")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "allow the learned rights without asking")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "wait at most this `time` for each tool")
	f.development.flags(cmd)
	storeFlag(cmd.Flags(), &f.store)
	return cmd
}

// parseWork returns the calls that the arguments describe. An argument that begins with { belongs to the tool before
// it.
func parseWork(args []string) (work []call.Call, err error) {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "{") {
			work = append(work, call.Call{Tool: arg, Arguments: jsontext.Value("{}")})
			continue
		}
		if len(work) == 0 {
			return nil, usage("", "no tool is named before the arguments %s", diag.Quote(arg))
		}
		work[len(work)-1].Arguments = jsontext.Value(arg)
	}
	return work, nil
}

// learnedServer describes what ambit learned about one server.
type learnedServer struct {
	Server string `json:"server"`
	// Used is the number of different files, programs and hosts that the server tried to use.
	Used     int          `json:"used"`
	Proposed agent.Access `json:"proposed"`
	// Commands lists the commands that allow the proposed rights.
	Commands []string `json:"commands"`

	holder allowance.Holder
}

// learnedCall is the result of one call.
type learnedCall struct {
	Tool  string `json:"tool"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

type learnDocument struct {
	Agent   string          `json:"agent"`
	Calls   []learnedCall   `json:"calls"`
	Servers []learnedServer `json:"servers"`
	Allowed bool            `json:"allowed"`
	// Failed is set if the agent did not start.
	Failed bool `json:"failed,omitempty"`
}

// learn runs an agent's servers, makes the calls, and proposes the access that the servers lacked.
func (t *terminal) learn(ctx context.Context, path string, work []call.Call, f *learnFlags) error {
	m, err := t.loadFor(f.development, path, "")
	if err != nil {
		return err
	}
	m = m.Remote()
	if !host.Confines {
		return missing("use Linux", "ambit cannot learn on this system, because it does not confine tool servers here")
	}
	if !onServers(m) {
		return no("", "%s has no tool servers", diag.Printable(m.Path))
	}
	if err := t.checkOwner("only the owner may learn what a server needs"); err != nil {
		return err
	}
	extra, err := t.canonical((&rightFlags{read: f.within, hosts: f.hosts}).rights())
	if err != nil {
		return err
	}
	b, err := t.openStore(ctx, f.store)
	if err != nil {
		return err
	}
	err = t.learnWith(ctx, m, work, extra, b, f)
	return errors.Join(err, closing(b))
}

func (t *terminal) learnWith(
	ctx context.Context, m *manifest.Manifest, work []call.Call, extra agent.Access, b *store.Store, f *learnFlags,
) error {
	o, err := t.hostOptions(f.development, false)
	if err != nil {
		return err
	}
	var recorder learn.Recorder
	o.Store, o.Name, o.OnUse = b, registeredName(t.home, m), recorder.Use
	if o.Resolved, err = t.resolveAndWarn(ctx, m); err != nil {
		return err
	}
	a := o.Resolved.Agent()
	o.Extra = func(s *agent.Server) agent.Access { return extraAccess(a, s, extra) }
	calls, err := t.makeCalls(ctx, m, o, work, f.timeout)
	if err != nil {
		t.warnf("the agent did not start: %s", diag.Printable(err.Error()))
	}
	doc := learnDocument{Agent: o.Name, Calls: calls, Servers: []learnedServer{}, Failed: err != nil}
	if err := interrupted(ctx, "nothing was allowed"); err != nil {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	rights := t.rights(m, a)
	for i := range a.Servers {
		s := &a.Servers[i]
		if s.Transport != agent.Stdio {
			continue
		}
		access, _, err := rights.Of(ctx, b, s)
		if err != nil {
			return err
		}
		used, complete := recorder.Used(s.Alias)
		if !complete {
			t.warnf("server %s used more files, programs and hosts than ambit can record", diag.Printable(s.Alias))
		}
		server := learnedServer{
			Server: s.Alias, Used: used, Proposed: agent.Access{}, Commands: []string{}, holder: rights.Holder(s),
		}
		for _, r := range recorder.Propose(s.Alias, access, home, t.home.Dir()) {
			if t.checkRight(&r) == nil {
				server.Proposed = append(server.Proposed, r)
				server.Commands = append(server.Commands, toolserver.AllowCommand(host.Reference(t.home, m.Path, o.Name), s.Alias, r))
			}
		}
		doc.Servers = append(doc.Servers, server)
	}
	return t.acceptLearned(ctx, b, &doc, f.yes)
}

// extraAccess returns the rights that the user gives a server while ambit learns. For a folder, these are the same
// rights as for a path in the server's arguments: whether the server can write to the folder depends on the server's
// callable tools.
func extraAccess(a *agent.Agent, s *agent.Server, extra agent.Access) (access agent.Access) {
	for _, r := range extra {
		if r.Kind == agent.CanRead {
			named := *s
			named.Args = []string{r.What}
			access = access.With(a.Access(&named).Of(agent.CanRead)).With(a.Access(&named).Of(agent.CanWrite))
			continue
		}
		access = access.With(agent.Access{r})
	}
	return access
}

// makeCalls starts the agent and makes the calls. Failures are expected, because the servers may lack access.
func (t *terminal) makeCalls(
	ctx context.Context, m *manifest.Manifest, o host.Options, work []call.Call, timeout time.Duration,
) (calls []learnedCall, err error) {
	calls = []learnedCall{}
	a, end, err := t.start(ctx, m, o)
	if err != nil {
		return calls, err
	}
	defer end()
	for _, c := range work {
		c.ID, c.Principal, c.Timeout = gateway.NewID(), identity.LocalName(), timeout
		result, err := a.Gateway().Call(ctx, &c)
		made := learnedCall{Tool: c.Tool, OK: err == nil && !result.IsError}
		switch {
		case err != nil:
			made.Error = err.Error()
		case result.IsError:
			made.Error = "the tool reported an error: " + diag.Cut(firstText(result), 300)
		}
		if !t.json {
			mark := t.paint(green, "✓")
			if !made.OK {
				mark = t.paint(red, "✗")
			}
			t.printf("%s %s  %s\n", mark, diag.Printable(c.Tool), diag.Printable(made.Error))
		}
		calls = append(calls, made)
	}
	return calls, nil
}

// firstText returns the first text of a result.
func firstText(r call.Result) string {
	var raw struct{ Content []struct{ Text string } }
	if json.Unmarshal(r.Raw, &raw) == nil {
		for _, c := range raw.Content {
			if c.Text != "" {
				return c.Text
			}
		}
	}
	return ""
}

// acceptLearned shows the rights that the servers lacked. It allows them after the user has agreed.
func (t *terminal) acceptLearned(ctx context.Context, b *store.Store, doc *learnDocument, yes bool) error {
	proposals := 0
	for _, s := range doc.Servers {
		proposals += len(s.Proposed)
		if t.json {
			continue
		}
		t.printf("%s %s  %s\n", t.paint(bold, diag.Printable(doc.Agent)), t.paint(bold, diag.Printable(s.Server)),
			t.paint(dim, fmt.Sprintf("used %d files, programs and hosts", s.Used)))
		t.table("  ", each(s.Proposed, func(r agent.Right) []string {
			return []string{t.paint(green, "+"), diag.Printable(r.String())}
		}))
	}
	if proposals == 0 {
		failed := doc.Failed || slices.ContainsFunc(doc.Calls, func(c learnedCall) bool { return !c.OK })
		return t.judge(!failed, doc, func() { t.notef("ambit proposes no new rights for the servers") })
	}
	if !yes && (t.json || !t.interactive()) {
		return t.show(doc, func() {
			for _, s := range doc.Servers {
				for _, command := range s.Commands {
					t.hintf("to allow it, run: %s", command)
				}
			}
		})
	}
	if !yes {
		if agreed, err := t.agreed(ctx, "allow this?"); err != nil || !agreed {
			return errors.Join(err, no("to allow the rights without being asked, add --yes", "nothing was allowed"))
		}
	}
	for _, s := range doc.Servers {
		if err := addRights(ctx, b, s.holder, s.Proposed); err != nil {
			return err
		}
	}
	doc.Allowed = true
	return t.show(doc, func() {
		t.printf("%s %s\n", t.paint(green, "allowed:"), count(proposals, "right"))
		t.appliesLater(ctx)
	})
}
