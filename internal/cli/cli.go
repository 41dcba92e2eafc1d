// Package cli is the command line: one file per verb.
//
// A verb reads its arguments, asks the packages below for the answer and prints
// it through a [terminal], which alone writes to the screen (terminal.go starts
// with its rules). A verb returns nil, a [failure] with its exit code, or any
// other error, which means that something it needs is missing:
//
//	0  yes
//	1  no: invalid, widened, refused, failed
//	2  wrong usage
//	3  something needed is missing here
//
// Every verb accepts --json and then prints exactly one JSON document on stdout;
// a failure is {"error":{"message","hint"}} unless the verb has a document of its
// own for a negative answer. Verbs, flags, exit codes and the fields of these
// documents are a contract: they are added to, never renamed.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
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

// failure is an error with an exit code and a hint how to fix it.
type failure struct {
	code int
	err  error
	hint string
	// printed means that the verb has already printed everything.
	printed bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// errNo ends a verb whose output already contains the negative answer.
var errNo = &failure{code: exitNo, err: errors.New("no"), printed: true}

// errMissing ends a verb whose output already names what is missing.
var errMissing = &failure{code: exitMissing, err: errors.New("something is missing"), printed: true}

func no(hint, format string, args ...any) error {
	return &failure{code: exitNo, err: fmt.Errorf(format, args...), hint: hint}
}

func usage(hint, format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

func missing(hint, format string, args ...any) error {
	return &failure{code: exitMissing, err: fmt.Errorf(format, args...), hint: hint}
}

// Main runs the command line of this process and returns its exit code.
func Main() int {
	// A command is short-lived: collecting less often is worth some memory.
	debug.SetGCPercent(400)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After a signal, servers have three seconds to exit before the process does; a
	// second signal ends it immediately.
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
		err = fmt.Errorf("cannot write the output: %w", flushErr)
	}
	if err == nil {
		return 0
	}
	f := failureOf(err)
	switch {
	case t.interrupted:
		f = errInterrupted // whatever the verb returned
	case ctx.Err() != nil:
		// The verb's message stays; the exit code is that of interrupted programs.
		ended := *f
		ended.code, f = exitInterrupted, &ended
	}
	if !f.printed {
		t.fail(f)
	}
	return f.code
}

// failureOf returns the failure that ends a verb with err.
func failureOf(err error) *failure {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{code: exitMissing, err: err}
	}
	if f.hint == "" && homeUnwritable(err) {
		f.hint = writableHome
	}
	return f
}

const writableHome = "set AMBIT_HOME to a folder that can be written"

// homeUnwritable reports whether an error comes from a home that cannot be written.
func homeUnwritable(err error) bool {
	at, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return false
	}
	h, err := home.Find()
	within := strings.HasPrefix(at.Path, h.Dir()) || strings.HasPrefix(h.Dir(), at.Path)
	return err == nil && within && h.Writable() != nil
}

// The groups of verbs, in the order in which help --all lists them.
const (
	groupWrite   = "write"
	groupReview  = "review"
	groupInstall = "install"
	groupRun     = "run"
	groupDecide  = "decide"
	groupSecrets = "secrets"
	groupRecords = "records"
	groupHelp    = "help"
)

// everyday are the verbs that bare ambit shows, in the order of a person's day.
var everyday = []string{
	"init", "import", "validate", "inspect", "install", "serve", "call", "why", "approvals", "journal", "doctor",
}

// worksWithoutHome are the verbs that never need a home folder.
var worksWithoutHome = []string{
	"", " help", " completion", " version", " man", " schema", " explain", " doctor", " validate", " tools", " diff",
	" convert", " new", " import", " export", " bundle scan", " bundle pack",
}

func newRoot(t *terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   "ambit",
		Short: "An agent does what its manifest says, and nothing else.",
		Long: "ambit reads an agent's manifest, proves that its tool servers match it, and runs the agent so that every\n" +
			"call goes through one gateway. It reads four dialects: Matrix, GPARS, Covenant and FindAgent.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return noVerb(cmd, args)
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
	root.PersistentPreRunE = t.setUp
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddGroup(
		&cobra.Group{ID: groupWrite, Title: "Write an agent"},
		&cobra.Group{ID: groupReview, Title: "Review an agent"},
		&cobra.Group{ID: groupInstall, Title: "Prove and install"},
		&cobra.Group{ID: groupRun, Title: "Run and call"},
		&cobra.Group{ID: groupDecide, Title: "Decide what is allowed"},
		&cobra.Group{ID: groupSecrets, Title: "Credentials and keys"},
		&cobra.Group{ID: groupRecords, Title: "Records and backups"},
		&cobra.Group{ID: groupHelp, Title: "Help"},
	)
	root.AddCommand(
		newNew(t), newInit(t), newConvert(t), newImport(t), newExport(t), newSchema(t),
		newValidate(t), newInspect(t), newTools(t), newDiff(t), newExplain(t),
		newVerify(t), newLock(t), newInstall(t), newUninstall(t), newCatalog(t), newBundle(t),
		newRun(t), newServe(t), newCall(t), newDispatch(t), newWorker(t), newToolServer(t),
		newAgents(t), newReload(t), newConsole(t),
		newWhy(t), newApprovals(t), newPolicy(t), newGrant(t), newRevoke(t), newGrants(t),
		newSecret(t), newLogin(t), newLogout(t), newWhoami(t), newKey(t), newRotate(t),
		newJournal(t), newMemory(t), newBackup(t), newRestore(t),
		newDoctor(t), newVersion(t), newMan(t),
	)
	ownHelp(t, root)
	hintVerbs(root)
	return root
}

// Verbs returns the tree of all verbs, from which the reference pages are generated.
func Verbs() *cobra.Command {
	return newRoot(newTerminal(strings.NewReader(""), io.Discard, io.Discard))
}

// group makes cmd a verb that has only verbs of its own.
func group(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(verbs...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		// The argument is not repeated: it may be a value that was meant for a prompt.
		return usage("use "+diag.Words(verbNames(cmd), "or"), "%s has no such verb", cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// exactly requires n arguments; what describes them.
func exactly(n int, what string) cobra.PositionalArgs { return between(n, n, what) }

func atMost(n int, what string) cobra.PositionalArgs { return between(0, n, what) }

func atLeast(n int, what string) cobra.PositionalArgs { return between(n, 1<<16, what) }

func between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		path := cmd.CommandPath()
		return usage("see: "+path+" --help", "%s takes %s, but got %s", path, what, count(len(args), "argument"))
	}
}

// complete offers words as the values of a flag.
func complete(cmd *cobra.Command, flag string, words []string) {
	values := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // there is no such flag
	}
}

func dialectFlag(cmd *cobra.Command, dialect *string) {
	cmd.Flags().StringVar(dialect, "dialect", "",
		"read the manifest as this `dialect` instead of detecting it: "+strings.Join(dialectNames(), ", "))
	complete(cmd, "dialect", dialectNames())
}

// storeFlag adds --store to a verb that uses the store of the home by default.
func storeFlag(set *pflag.FlagSet, store *string) {
	set.StringVar(store, "store", "", "the store as a postgres:// `URL`; the default is the one in AMBIT_HOME")
}

// sharedStoreFlag adds --store to a verb that uses the daemon's store by default.
func sharedStoreFlag(set *pflag.FlagSet, store *string) {
	set.StringVar(store, "store", "", "the store as a postgres:// `URL`; the default is the store of the running daemon, or the one in AMBIT_HOME")
}

// outputFlags add -o and --force to a verb that writes a new file.
func outputFlags(cmd *cobra.Command, output *string, force *bool, usage string) {
	cmd.Flags().StringVarP(output, "output", "o", "", usage)
	cmd.Flags().BoolVar(force, "force", false, "overwrite existing files")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// needsHome reports whether a verb needs a home folder. A few verbs need none with certain
// arguments; the rest of their code that does, such as serverOptions, looks for it again.
func needsHome(cmd *cobra.Command, args []string) bool {
	path := strings.TrimPrefix(cmd.CommandPath(), "ambit")
	switch path {
	case " journal verify":
		return len(args) == 0
	case " journal prove":
		return !cmd.Flags().Changed("check")
	case " verify":
		return !cmd.Flags().Changed("offline")
	case " policy init":
		return cmd.Flag("print-schema").Value.String() != "true"
	}
	return !slices.Contains(worksWithoutHome, path) && !strings.HasPrefix(path, " completion") && !strings.HasPrefix(path, " __complete")
}
