package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// rightFlags contains the flags of "ambit allow" and "ambit disallow" that name rights of a tool server.
type rightFlags struct {
	read, write, hosts, programs []string
	private                      bool
	store                        string
}

func (f *rightFlags) flags(cmd *cobra.Command) {
	list := func(to *[]string, name, help string) {
		cmd.Flags().StringArrayVar(to, name, nil, help+"; can be repeated")
	}
	list(&f.read, "read", "a file or folder (`path`) that the server can read")
	list(&f.write, "write", "a file or folder (`path`) that the server can read and write")
	list(&f.hosts, "host", "a `host` or HOST:PORT that the server can connect to, or * for any public host")
	list(&f.programs, "exec", "a `program` that the server can start, or * for any program")
	cmd.Flags().BoolVar(&f.private, "private", false,
		"the hosts in --host can have private or loopback addresses; each host needs a port")
	sharedStoreFlag(cmd.Flags(), &f.store)
}

// rights returns the rights that the flags name.
func (f *rightFlags) rights() (rights agent.Access) {
	for _, of := range []struct {
		kind  agent.RightKind
		names []string
	}{
		{agent.CanRead, f.read}, {agent.CanWrite, f.write}, {agent.CanConnect, f.hosts}, {agent.CanExecute, f.programs},
	} {
		for _, name := range of.names {
			rights = append(rights, agent.Right{Kind: of.kind, What: name, Private: f.private && of.kind == agent.CanConnect})
		}
	}
	return rights
}

// canonical returns rights with absolute paths and canonical hosts. The error lists all rights that cannot be allowed.
func (t *terminal) canonical(rights agent.Access) (agent.Access, error) {
	absolute, err := toolserver.Absolute(rights)
	if err != nil {
		return nil, err
	}
	var list agent.Access
	var problems []string
	for i, r := range absolute {
		r.Reason = ""
		if err := t.checkRight(&r); err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %v", toolserver.FlagOf[r.Kind], diag.Quote(rights[i].What), err))
		}
		list = list.With(agent.Access{r})
		// The server can follow a link only if it also has the right to the link's target.
		if real, err := filepath.EvalSymlinks(r.What); err == nil && (r.Kind == agent.CanRead || r.Kind == agent.CanWrite) {
			r.What = real
			list = list.With(agent.Access{r})
		}
	}
	if len(problems) > 0 {
		return nil, usage("see: ambit allow --help", "nothing was changed; %s", strings.Join(problems, "; "))
	}
	return list, nil
}

// recognize makes the paths in rights absolute, and every right that can be allowed canonical. Unlike
// [terminal.canonical], it returns no error for the other rights.
func (t *terminal) recognize(rights agent.Access) (agent.Access, error) {
	rights, err := toolserver.Absolute(rights)
	for i, r := range rights {
		if t.checkRight(&r) == nil {
			rights[i] = r
		}
	}
	return rights, err
}

// neverShown lists folders that the kernel provides, such as /proc. A server never sees these folders of the machine.
// It sees the folders of its own sandbox instead.
var neverShown = []string{"/proc", "/sys", "/dev"}

// checkRight makes a right canonical. It returns an error if the right cannot be allowed.
func (t *terminal) checkRight(r *agent.Right) (err error) {
	if r.What == "" || len(r.What) > 4096 || !utf8.ValidString(r.What) || strings.ContainsFunc(r.What, unicode.IsControl) {
		return errors.New("the value is empty, too long or has invalid characters")
	}
	switch r.Kind {
	case agent.CanConnect:
		if r.What == agent.Any && r.Private {
			return errors.New("--private needs the name of each host, because \"*\" allows only public hosts")
		}
		if r.What != agent.Any {
			r.What, err = egress.ParseDestination(r.What, r.Private)
		}
		return err
	case agent.CanExecute:
		if r.What == agent.Any {
			return nil
		}
		path, err := exec.LookPath(r.What)
		if err != nil {
			return errors.New("there is no such program")
		}
		r.What, err = filepath.Abs(path)
		return err
	}
	real := r.What
	if path, err := filepath.EvalSymlinks(r.What); err == nil {
		real = path
	}
	kept := t.home.Dir()
	if path, err := filepath.EvalSymlinks(kept); err == nil {
		kept = path
	}
	switch {
	case real == filepath.Dir(real):
		return errors.New("the whole file system cannot be allowed; name the folders that the server needs")
	case slices.ContainsFunc(neverShown, func(dir string) bool { return sandbox.Inside(real, dir) }):
		return errors.New("a sandbox has its own " + strings.Join(neverShown, ", ") +
			", so the folders of this machine cannot be allowed")
	case sandbox.Inside(real, kept):
		return errors.New("ambit's own files stay hidden from servers")
	}
	return nil
}

// toolServer is a tool server and its access.
type toolServer struct {
	allowance.Holder
	rights host.Rights
	server *agent.Server // nil if the agent has no such server
	// command is the command that lists the access of the server.
	command string
}

// toolServer loads the agent with the given path or name, and returns its server with the given alias.
func (t *terminal) toolServer(ctx context.Context, path, alias string) (*toolServer, error) {
	m, err := t.load(path, "")
	if err != nil {
		return nil, err
	}
	resolved, err := t.resolve(ctx, m)
	if err != nil {
		return nil, err
	}
	alias = serverNamed(t.home, resolved.Agent(), alias)
	s := &toolServer{
		rights: t.rights(m, resolved.Agent()), server: resolved.Agent().Server(alias),
		command: "ambit allow " + diag.ShellWord(path) + " " + diag.ShellWord(alias),
	}
	if s.server == nil {
		s.Holder = allowance.Holder{Agent: s.rights.Name, ID: s.rights.Agent.ID, Server: alias}
	} else {
		s.Holder = s.rights.Holder(s.server)
	}
	return s, nil
}

// local returns an error if the server does not run on this machine.
func (s *toolServer) local() error {
	aliases := each(s.rights.Agent.Servers, func(s agent.Server) string { return s.Alias })
	switch {
	case s.server == nil && len(aliases) == 0:
		return no("", "%s has no tool servers", diag.Quote(s.Agent))
	case s.server == nil:
		hint := cmp.Or(diag.DidYouMean(s.Server, aliases), "the servers are "+diag.Words(aliases, "and"))
		return no(hint, "%s has no server %s", diag.Quote(s.Agent), diag.Quote(s.Server))
	case s.server.Transport != agent.Stdio:
		return no("", "server %s does not run on this machine", diag.Quote(s.Server))
	}
	return nil
}

func newAllow(t *terminal) *cobra.Command {
	var f rightFlags
	var proposed, yes bool
	cmd := verb("allow AGENT SERVER", exactly(2, "an agent and a server"), func(ctx context.Context, args []string) error {
		if f.private && len(f.hosts) == 0 {
			return usage("add --host NAME:PORT", "--private needs --host")
		}
		rights, err := t.canonical(f.rights())
		if err != nil {
			return err
		}
		s, err := t.toolServer(ctx, args[0], args[1])
		if err == nil {
			err = s.local()
		}
		if err != nil {
			return err
		}
		if len(rights) == 0 && !proposed {
			return t.showAccess(ctx, s, f.store)
		}
		if proposed {
			if len(s.server.Proposed) == 0 {
				return no("", "the manifest proposes no rights for server %s", diag.Quote(s.Server))
			}
			accepted, err := t.canonical(s.server.Proposed)
			if err != nil {
				return err
			}
			rights = rights.With(accepted)
		}
		return t.allow(ctx, s, f.store, rights, yes)
	})
	f.flags(cmd)
	cmd.Flags().BoolVar(&proposed, "proposed", false, "allow exactly the rights that the manifest proposes now")
	cmd.Flags().BoolVar(&yes, "yes", false, "allow the rights without asking")
	return cmd
}

func newDisallow(t *terminal) *cobra.Command {
	var f rightFlags
	var all bool
	what := exactly(2, "an agent and a server")
	cmd := verb("disallow AGENT SERVER", what, func(ctx context.Context, args []string) error {
		rights := f.rights()
		if all == (len(rights) > 0) {
			return usage("see: ambit disallow --help", "name the rights to remove, or use --all")
		}
		s, err := t.toolServer(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return t.disallow(ctx, s, f.store, rights)
	})
	f.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "remove all rights that were added for the server")
	return cmd
}

// accessDocument is the JSON document of "ambit allow".
type accessDocument struct {
	Agent  string `json:"agent"`
	Server string `json:"server"`
	// Access is the access of the server at its next start.
	Access agent.Access `json:"access"`
	// Added and Removed list what has changed.
	Added   agent.Access `json:"added"`
	Removed agent.Access `json:"removed"`
	// Proposed lists the proposed rights that the server does not have.
	Proposed agent.Access `json:"proposed"`
	// Warnings lists allowances that have no effect.
	Warnings []string `json:"warnings"`
}

// missingFrom returns the rights in list that access does not contain.
func missingFrom(access, list agent.Access) agent.Access {
	return slices.DeleteFunc(slices.Clone(list), func(r agent.Right) bool { return slices.ContainsFunc(access, r.Same) })
}

func (t *terminal) accessDocument(
	s *toolServer, before, after agent.Access, list []*allowance.Allowance,
) (accessDocument, error) {
	proposed, err := t.recognize(s.server.Proposed)
	return accessDocument{
		Agent: s.Agent, Server: s.Server, Access: notNil(after),
		Added: notNil(missingFrom(before, after)), Removed: notNil(missingFrom(after, before)),
		Proposed: notNil(missingFrom(after, after.With(proposed))), Warnings: notNil(allowance.Warnings(list)),
	}, err
}

// showAccess prints the access of a server and what its manifest proposes.
func (t *terminal) showAccess(ctx context.Context, s *toolServer, storeURL string) error {
	b, err := t.existingStore(ctx, storeURL)
	if err != nil {
		return err
	}
	if b != nil {
		defer b.Close()
	}
	access, list, err := s.rights.Of(ctx, b, s.server)
	if err != nil {
		return err
	}
	doc, err := t.accessDocument(s, access, access, list)
	if err != nil {
		return err
	}
	return t.show(doc, func() {
		t.printAccess(doc)
		if len(doc.Access) == 0 {
			t.notef("the server can use nothing on this machine except its private folder")
		}
		if len(doc.Proposed) > 0 {
			t.printf("the manifest proposes these rights, which have no effect until you accept them:\n")
			t.table("  ", each(doc.Proposed, t.rightRow))
			t.hintf("to accept all of them, run: %s --proposed", s.command)
		}
	})
}

// printAccess prints the access of a server, with the changes marked, and warns about modified allowances.
func (t *terminal) printAccess(doc accessDocument) {
	t.printf("%s %s\n", t.paint(bold, diag.Printable(doc.Agent)), t.paint(bold, diag.Printable(doc.Server)))
	mark := func(mark string, colour style) func(agent.Right) []string {
		return func(r agent.Right) []string { return append([]string{t.paint(colour, mark)}, t.rightRow(r)...) }
	}
	var rows [][]string
	for _, r := range doc.Access {
		if slices.ContainsFunc(doc.Added, r.Same) {
			rows = append(rows, mark("+", green)(r))
		} else {
			rows = append(rows, mark(" ", dim)(r))
		}
	}
	t.table("  ", append(rows, each(doc.Removed, mark("-", red))...))
	for _, w := range doc.Warnings {
		t.warnf("%s", w)
	}
}

func (t *terminal) rightRow(r agent.Right) []string {
	return []string{diag.Printable(r.String()), t.paint(dim, diag.Printable(r.Reason))}
}

func (t *terminal) allow(ctx context.Context, s *toolServer, storeURL string, rights agent.Access, yes bool) error {
	if err := t.checkOwner("only the owner may give a server more rights"); err != nil {
		return err
	}
	return t.withSharedStore(ctx, storeURL, func(b *store.Store) error {
		before, list, err := s.rights.Of(ctx, b, s.server)
		if err != nil {
			return err
		}
		added := each(rights, func(r agent.Right) *allowance.Allowance {
			return &allowance.Allowance{Holder: s.Holder, Right: r}
		})
		doc, err := t.accessDocument(s, before, before.With(allowance.Access(added)), list)
		if err != nil {
			return err
		}
		if !t.json {
			t.printAccess(doc)
		}
		for _, r := range doc.Access {
			if r.Kind == agent.CanExecute && r.What != agent.Any && toolserver.Replaceable(r.What, doc.Access) {
				return no("", "nothing was allowed, because the server could replace the program %s, which is in a folder that "+
					"the server can write", diag.Quote(r.What))
			}
		}
		if len(doc.Added) == 0 {
			return t.show(doc, func() { t.notef("nothing has changed, because the server already has these rights") })
		}
		for _, r := range doc.Added {
			if _, err := os.Stat(r.What); err != nil && (r.Kind == agent.CanRead || r.Kind == agent.CanWrite) {
				t.warnf("%s does not exist; the server can use this path only if it exists when the server starts",
					diag.Printable(r.What))
			}
		}
		if !yes {
			agreed, err := t.agreed(ctx, "allow this?")
			if err != nil {
				return err
			}
			if !agreed {
				return no("to allow the rights without being asked, add --yes", "nothing was allowed")
			}
		}
		if err := addRights(ctx, b, s.Holder, doc.Added); err != nil {
			return err
		}
		return t.show(doc, func() {
			t.printf("%s %s for server %s of %s\n", t.paint(green, "allowed:"), count(len(doc.Added), "right"),
				diag.Printable(s.Server), diag.Printable(s.Agent))
			t.appliesLater(ctx)
		})
	})
}

// addRights stores rights that a person has accepted.
func addRights(ctx context.Context, b *store.Store, h allowance.Holder, rights agent.Access) error {
	err := allowance.Of(b).Allow(ctx, h, rights, identity.LocalName())
	if errors.Is(err, allowance.ErrTooMany) {
		return no("to remove rights, run: ambit disallow", "nothing was allowed for server %s: %w", diag.Quote(h.Server), err)
	}
	return err
}

// appliesLater prints when a changed access takes effect.
func (t *terminal) appliesLater(ctx context.Context) {
	later := "the change applies when the server starts next"
	if d, err := daemon.FindDaemon(t.home); err == nil && d.Alive(ctx) {
		later += "; to restart the servers of the running daemon that have changed, run: ambit reload"
	}
	t.remarkf("%s", later)
}

func (t *terminal) disallow(ctx context.Context, s *toolServer, storeURL string, rights agent.Access) error {
	if err := t.checkOwner("only the owner may change the rights of a server"); err != nil {
		return err
	}
	rights, err := t.recognize(rights)
	if err != nil {
		return err
	}
	return t.withSharedStore(ctx, storeURL, func(b *store.Store) error {
		removed, err := allowance.Of(b).Disallow(ctx, s.Holder, rights, identity.LocalName())
		if absent, ok := errors.AsType[allowance.NotAllowed](err); ok {
			return no("rights that come from the manifest cannot be removed; to list all rights, run: "+s.command,
				"nothing was removed, because no permission was added for server %s to %s", diag.Quote(s.Server), diag.Printable(absent.Error()))
		}
		if err != nil {
			return err
		}
		doc := map[string]any{"agent": s.Agent, "server": s.Server, "removed": notNil(removed)}
		return t.show(doc, func() {
			for _, r := range removed {
				t.printf("%s %s\n", t.paint(green, "removed:"), diag.Printable(r.String()))
			}
			if len(removed) == 0 {
				t.notef("nothing has changed, because no rights were added for server %s", diag.Printable(s.Server))
				return
			}
			t.appliesLater(ctx)
		})
	})
}
