package cli_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/ambit-run/ambit/internal/cli"
)

// If the test binary is started under a name of ambit, it runs ambit instead of the tests.
func TestMain(m *testing.M) {
	ambit := func() { os.Exit(cli.Main()) }
	testscript.Main(leakless{m}, map[string]func(){"ambit": ambit, "mcl-tools": ambit, "findagent-mcp": ambit})
}

// leakless runs the tests and then fails if goroutines are left. The goroutine that starts programs is allowed,
// because it runs until the process exits.
type leakless struct{ *testing.M }

func (l leakless) Run() int {
	code := l.M.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/ambit-run/ambit/internal/exec/toolserver.startPrograms")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

// TestScripts runs the scripts in testdata, which cover each verb and each refusal. $AGENTS is the folder of the
// shipped agents.
func TestScripts(t *testing.T) {
	agents, err := filepath.Abs("../../agents")
	if err != nil {
		t.Fatal(err)
	}
	path := append(program(t), os.Getenv("PATH"))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("AGENTS", agents)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", strings.Join(path, string(os.PathListSeparator)))
			e.Setenv("NO_COLOR", "")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // with the race detector, exiting takes a second by default
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "jsonpath": jsonpath, "upstream": upstream, "sources": sources},
	})
}
