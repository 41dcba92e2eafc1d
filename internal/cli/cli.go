// Package cli implements the ambit command. Each verb has its own file.
//
// A verb parses its arguments, gets the answer from other packages, and prints the answer through a [terminal]. Only
// the terminal writes to the screen. The rules for output are at the top of terminal.go. A verb returns nil or an
// error. A [failure] is an error with an exit code. Any other error means exit code 3. The exit codes are:
//
//	0  the answer is yes, or the work is done
//	1  the answer is no: invalid, widened, refused or failed
//	2  the command line is wrong
//	3  something that the verb needs is missing on this machine
//
// With --json, every verb prints exactly one JSON document on standard output. The document of a failure is
// {"error":{"message","hint"}}. Some verbs have their own document for a negative answer. Scripts depend on the names
// of verbs, flags and document fields, and on the exit codes. New names can be added, but old names never change.
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
	// exitInterrupted is the code that shells use for an interrupted command.
	exitInterrupted = 130
)

// failure is an error with an exit code. The hint is the fix for the problem.
type failure struct {
	code int
	err  error
	hint string
	// printed is set if the verb has already printed the message.
	printed bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// errNo is returned by a verb that has already printed a negative answer.
var errNo = &failure{code: exitNo, err: errors.New("no"), printed: true}

// errMissing is returned by a verb that has already printed what is missing.
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

// Main runs the command line of the process and returns the exit code.
func Main() int {
	// Most commands exit soon, so let them use more memory in exchange for less garbage collection.
	debug.SetGCPercent(mostGarbage)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After a signal, tool servers have three seconds to exit. A second signal terminates this process immediately.
	context.AfterFunc(ctx, func() {
		stop()
		time.AfterFunc(3*time.Second, func() { os.Exit(exitInterrupted) })
	})
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "mcl-tools" {
		return mclTools(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Run runs a command line and returns the exit code.
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
		f = errInterrupted
	case ctx.Err() != nil:
		// Keep the verb's message, but exit with exitInterrupted.
		ended := *f
		ended.code, f = exitInterrupted, &ended
	}
	if !f.printed {
		t.fail(f)
	}
	return f.code
}

// failureOf converts any error to a failure.
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

const writableHome = "set AMBIT_HOME to a folder that you can write to"

// homeUnwritable reports whether the error occurred because the user cannot write to the home folder.
func homeUnwritable(err error) bool {
	at, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return false
	}
	h, err := home.Find()
	within := strings.HasPrefix(at.Path, h.Dir()) || strings.HasPrefix(h.Dir(), at.Path)
	return err == nil && within && h.Writable() != nil
}

// groupHelp is the id of the group for verbs about ambit itself, such as "ambit version".
const groupHelp = "help"

// everydayVerbs lists the verbs that the short help shows, in the order in which they are usually used.
var everydayVerbs = []string{
	"init", "import", "validate", "inspect", "install", "serve", "call", "why", "approvals", "journal", "doctor",
}

// worksWithoutHome lists the verbs that never need a home folder. The entries do not include the leading "ambit".
var worksWithoutHome = []string{
	"", " help", " completion", " version", " man", " schema", " explain", " doctor", " validate", " tools", " diff",
	" convert", " new", " import", " export", " bundle scan", " bundle pack",
}

func newRoot(t *terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   "ambit",
		Short: "An agent does what its manifest says, and nothing else.",
		Long: "ambit reads an agent's manifest, checks the agent's tool servers, and runs the agent so that every\n" +
			"call goes through one gateway. Manifests have four dialects: Matrix, GPARS, Covenant and FindAgent.",
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
	complete(root, "color", colourChoices)
	root.Version = version
	root.SetVersionTemplate("ambit {{.Version}}\n")
	root.PersistentPreRunE = t.setUp
	root.CompletionOptions.HiddenDefaultCmd = false
	add := func(id, title string, verbs ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, v := range verbs {
			v.GroupID = id
		}
		root.AddCommand(verbs...)
	}
	add("write", "Write an agent",
		newNew(t), newInit(t), newConvert(t), newImport(t), newExport(t), newSchema(t))
	add("review", "Review an agent",
		newValidate(t), newInspect(t), newTools(t), newDiff(t), newExplain(t))
	add("install", "Prove and install",
		newVerify(t), newLock(t), newInstall(t), newUninstall(t), newCatalog(t), newBundle(t))
	add("run", "Run and call", newRun(t), newServe(t), newCall(t), newDispatch(t), newWorker(t), newToolServer(t),
		newAgents(t), newReload(t), newConsole(t))
	add("decide", "Decide what is allowed",
		newWhy(t), newApprovals(t), newPolicy(t), newGuard(t), newGrant(t), newRevoke(t), newGrants(t), newAllow(t),
		newDisallow(t), newLearn(t))
	add("secrets", "Credentials and keys",
		newSecret(t), newLogin(t), newLogout(t), newWhoami(t), newKey(t), newRotate(t))
	add("records", "Records and backups", newJournal(t), newMemory(t), newBackup(t), newRestore(t))
	add(groupHelp, "Help", newDoctor(t), newVersion(t), newMan(t))
	describe(root)
	ownHelp(t, root)
	return root
}

// Verbs returns the root command with all verbs. The reference pages are generated from the commands.
func Verbs() *cobra.Command {
	return newRoot(newTerminal(strings.NewReader(""), io.Discard, io.Discard))
}

// verb returns a command that checks its arguments and then calls the given function. The file verbs.txt contains the
// help texts.
func verb(use string, args cobra.PositionalArgs, run func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) },
	}
}

// group adds verbs to a command. Without a verb, the command prints its help.
func group(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(verbs...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		// Do not repeat the argument in the message, because the user may have typed a secret here by mistake.
		hint := cmp.Or(nearVerb(cmd, args[0]), "use "+diag.Words(verbNames(cmd), "or"))
		return usage(hint, "%s has no such verb", cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// exactly is the argument check for verbs that take n arguments. The error message contains the given description of
// the arguments.
func exactly(n int, what string) cobra.PositionalArgs { return between(n, n, what) }

func atMost(n int, what string) cobra.PositionalArgs { return between(0, n, what) }

func atLeast(n int, what string) cobra.PositionalArgs { return between(n, 1<<16, what) }

func between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		path, near := cmd.CommandPath(), ""
		if len(args) > 0 {
			near = nearVerb(cmd, args[0])
		}
		hint := cmp.Or(near, "see: "+path+" --help")
		return usage(hint, "%s takes %s, but got %s", path, what, count(len(args), "argument"))
	}
}

// complete registers the words that shell completion offers for a flag.
func complete(cmd *cobra.Command, flag string, words []string) {
	values := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // RegisterFlagCompletionFunc fails only if the flag does not exist
	}
}

func dialectFlag(cmd *cobra.Command, dialect *string) {
	cmd.Flags().StringVar(dialect, "dialect", "",
		"do not detect the dialect of the manifest; use this `dialect`: "+strings.Join(dialectNames(), ", "))
	complete(cmd, "dialect", dialectNames())
}

// storeFlag adds --store to a verb. Without the flag, the verb uses the store in the home folder.
func storeFlag(set *pflag.FlagSet, store *string) {
	set.StringVar(store, "store", "", "the store as a postgres:// `URL` (default: the store in AMBIT_HOME)")
}

// sharedStoreFlag adds --store to a verb. Without the flag, the verb uses the running daemon's store, or the store in
// the home folder.
func sharedStoreFlag(set *pflag.FlagSet, store *string) {
	set.StringVar(store, "store", "",
		"the store as a postgres:// `URL` (default: the running daemon's store, or the store in AMBIT_HOME)")
}

// outputFlags adds -o and --force to a verb that writes a file.
func outputFlags(cmd *cobra.Command, output *string, force *bool, usage string) {
	cmd.Flags().StringVarP(output, "output", "o", "", usage)
	cmd.Flags().BoolVar(force, "force", false, "overwrite existing files")
}

// each calls f for every element of a list and returns the results. The returned slice is never nil, so JSON contains
// [] and not null.
func each[T, R any](list []T, f func(T) R) []R {
	results := make([]R, len(list))
	for i, element := range list {
		results[i] = f(element)
	}
	return results
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// needsHome reports whether a verb needs a home folder to run. Some verbs need the home only with certain arguments.
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
	completes := strings.HasPrefix(path, " completion") || strings.HasPrefix(path, " __complete")
	return !completes && !slices.Contains(worksWithoutHome, path)
}
