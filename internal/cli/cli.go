// Package cli is the command line: one file per verb.
//
// A verb reads its arguments, asks the packages below for the answer and
// prints it through a [terminal], which alone writes to the screen (its rules
// are at the top of terminal.go). A verb ends with nil or with a [failure],
// which carries the exit code:
//
//	0  yes
//	1  no: invalid, widened, refused, failed
//	2  wrong usage
//	3  something needed is missing here
//
// Every verb takes --json and then prints one JSON document on stdout,
// whatever happens; a failure is {"error":{"message","hint"}} unless the verb
// has a document of its own for saying no. Verbs, flags, exit codes and the
// fields of these documents are a contract: they are added to, never renamed.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Exit codes.
const (
	exitNo      = 1
	exitUsage   = 2
	exitMissing = 3
	// exitInterrupted is what shells use for an interrupted command.
	exitInterrupted = 130
)

// failure is an error that knows its exit code and what to do about it.
type failure struct {
	code int
	err  error
	hint string
	// told says that the verb has already printed everything.
	told bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// errNo ends a verb whose output already said no.
var errNo = &failure{code: exitNo, err: errors.New("no"), told: true}

func no(hint, format string, args ...any) error {
	return &failure{code: exitNo, err: fmt.Errorf(format, args...), hint: hint}
}

func usage(hint, format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// Main runs the command line of this process and returns its exit code.
func Main() int {
	// A command is short-lived: collecting less often is worth some memory.
	debug.SetGCPercent(400)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Servers get a moment to end. Whatever does not notice is ended, and a
	// second signal ends everything at once.
	context.AfterFunc(ctx, func() {
		stop()
		time.AfterFunc(3*time.Second, func() { os.Exit(exitInterrupted) })
	})
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "mcl-tools" {
		return mclTools(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Run runs one command line and returns its exit code.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	t := newTerminal(in, out, errOut)
	root := newRoot(t)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if flushErr := t.flush(); err == nil && flushErr != nil {
		err = &failure{code: exitMissing, err: fmt.Errorf("cannot write the output: %w", flushErr)}
	}
	if err == nil {
		return 0
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		// Everything that a verb returns is a failure; the rest is cobra's word
		// on how it was called.
		f = &failure{code: exitUsage, err: err, hint: "see: ambit --help"}
	}
	switch {
	case t.interrupted:
		f = errInterrupted // whatever a verb made of it
	case ctx.Err() != nil:
		// What came of it until then is told; it ends as other programs do then.
		ended := *f
		ended.code, f = exitInterrupted, &ended
	}
	if f.hint == "" && nowhereToKeep(f) {
		f.hint = writableHome
	}
	if !f.told {
		t.fail(f)
	}
	return f.code
}

// writableHome is what to do where nothing can be kept.
const writableHome = "set AMBIT_HOME to a folder that can be written"

// nowhereToKeep reports whether an error comes from a home that cannot be written.
func nowhereToKeep(err error) bool {
	at, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return false
	}
	h, err := home.Find()
	within := strings.HasPrefix(at.Path, h.Dir()) || strings.HasPrefix(h.Dir(), at.Path)
	return err == nil && within && h.Writable() != nil
}

func newRoot(t *terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   "ambit",
		Short: "An agent does what its manifest says, and nothing else.",
		Long: "ambit reads an agent's manifest, proves that the world matches it, and runs the agent so that\n" +
			"every call goes through one door. It speaks four dialects: Matrix, GPARS, Covenant and FindAgent.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usage(cmp.Or(nearVerb(cmd, args[0]), "see: ambit --help"), "there is no verb %q", args[0])
		},
	}
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { t.help(cmd) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { t.help(cmd); return nil })
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := "see: " + cmd.CommandPath() + " --help"
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			if near := diag.Closest(unknown.GetSpecifiedName(), names); near != "" {
				hint = "did you mean --" + near + "?"
			}
		}
		return usage(hint, "%w", err)
	})
	root.PersistentFlags().BoolVar(&t.json, "json", false, "print one JSON document")
	root.PersistentFlags().StringVar(&t.colour, "color", "auto", "`when` to use colours: auto, always or never")
	complete(root, "color", []string{"auto", "always", "never"})
	root.Version = version
	root.SetVersionTemplate("ambit {{.Version}}\n")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return t.setUp() }
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddGroup(
		&cobra.Group{ID: groupRead, Title: "Read and review"},
		&cobra.Group{ID: groupWrite, Title: "Write"},
		&cobra.Group{ID: groupRun, Title: "Prove and run"},
		&cobra.Group{ID: groupHelp, Title: "Help"},
	)
	root.SetHelpCommandGroupID(groupHelp)
	root.SetCompletionCommandGroupID(groupHelp)
	root.AddCommand(
		newValidate(t), newInspect(t), newTools(t), newDiff(t), newExplain(t), newJournal(t),
		newNew(t), newInit(t), newConvert(t), newImport(t), newExport(t), newSchema(t),
		newVerify(t), newLock(t), newCall(t), newWhy(t), newRun(t), newApprovals(t),
		newServe(t), newAgents(t), newReload(t), newKey(t), newSecret(t), newLogin(t), newLogout(t), newWhoami(t),
		newInstall(t), newUninstall(t), newCatalog(t), newToolServer(t), newBundle(t),
		newDoctor(t), newDispatch(t), newWorker(t), newConsole(t), newBackup(t), newRestore(t), newRotate(t), newGrant(t), newRevoke(t), newGrants(t), newPolicy(t), newMemory(t), newVersion(t), newMan(t),
	)
	refuseUnknown(root)
	hintVerbs(root)
	return root
}

const (
	groupRead  = "read"
	groupWrite = "write"
	groupRun   = "run"
	groupHelp  = "help"
)

// exactly wants n arguments and says what they are.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return usage("see: "+cmd.CommandPath()+" --help", "%s takes %s, and got %s", cmd.CommandPath(), what, count(len(args), "argument"))
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
