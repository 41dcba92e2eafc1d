//go:build amd64 || arm64

package sandbox

import (
	_ "embed"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// The scripts that interpreters wait in. Each tells that it is there, waits for
// a byte, and goes on as if it had been started with the program's script.
var (
	//go:embed gate.py
	pythonGate string
	//go:embed gate.cjs
	nodeGate string
)

const gateFolder = "/etc/ambit/"

// gates are the waiting scripts by interpreter.
func gates(interpreter string) (file, text string) {
	if interpreter == "node" {
		return gateFolder + "gate.cjs", nodeGate
	}
	return gateFolder + "gate.py", pythonGate
}

// leading are variables that make an interpreter run what they name. A program
// that sets one is not started ahead.
var leading = []string{"PYTHON", "NODE_", "LD_", "GCONV_", "LOCPATH", "OPENSSL_"}

// hold makes the shape one with an interpreter in it, if the run is of a kind
// that can be started ahead: python3 or node with a script, and nothing else.
func (sh *shape) hold(s *Spec) {
	if len(s.Argv) < 2 || strings.HasPrefix(s.Argv[1], "-") || s.Argv[0] != "python3" && s.Argv[0] != "node" {
		return
	}
	for _, e := range s.Env {
		if slices.ContainsFunc(leading, func(l string) bool { return strings.HasPrefix(e, l) }) && !harmless(e) {
			return
		}
	}
	sh.interpreter, sh.argv, sh.env, sh.dir = s.Argv[0], s.Argv, environment(s), s.Dir
}

// harmless is what ambit itself sets: a file of certificates.
func harmless(variable string) bool {
	file, ok := strings.CutPrefix(variable, "NODE_EXTRA_CA_CERTS=")
	return ok && filepath.IsAbs(file)
}

// preorder starts the interpreter, and not the program.
func (sh *shape) preorder() *shim.Order {
	file, _ := gates(sh.interpreter)
	argv := append([]string{sh.argv[0], file}, sh.argv[1:]...)
	return &shim.Order{Argv: argv, Env: sh.env, Dir: sh.dir, Gate: true}
}
