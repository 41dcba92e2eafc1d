//go:build amd64 || arm64

package sandbox

import (
	_ "embed"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// The scripts in which interpreters wait. Each writes a byte, waits for a byte, and then
// runs the program's script as if it had been started with it.
var (
	//go:embed gate.py
	pythonGate string
	//go:embed gate.cjs
	nodeGate string
)

const gateFolder = "/etc/ambit/"

// gateScript returns the script in which an interpreter waits.
func gateScript(interpreter string) (file, text string) {
	if interpreter == "node" {
		return gateFolder + "gate.cjs", nodeGate
	}
	return gateFolder + "gate.py", pythonGate
}

// interpreterEnv are prefixes of variables that can make an interpreter load files. A
// run that sets one is not prestarted.
var interpreterEnv = []string{"PYTHON", "NODE_", "LD_", "GCONV_", "LOCPATH", "OPENSSL_"}

// prestart adds an interpreter to the shape if the run can be prestarted: python3 or
// node with a script as its first argument.
func (sh *shape) prestart(s *Spec) {
	if len(s.Argv) < 2 || strings.HasPrefix(s.Argv[1], "-") || s.Argv[0] != "python3" && s.Argv[0] != "node" {
		return
	}
	for _, e := range s.Env {
		if slices.ContainsFunc(interpreterEnv, func(l string) bool { return strings.HasPrefix(e, l) }) && !isCertificateFile(e) {
			return
		}
	}
	sh.interpreter, sh.argv, sh.env, sh.dir = s.Argv[0], s.Argv, environment(s), s.Dir
}

// isCertificateFile reports whether ambit itself sets this variable.
func isCertificateFile(variable string) bool {
	file, ok := strings.CutPrefix(variable, "NODE_EXTRA_CA_CERTS=")
	return ok && filepath.IsAbs(file)
}

// prestartOrder returns the order that starts the interpreter without the program.
func (sh *shape) prestartOrder() *shim.Order {
	file, _ := gateScript(sh.interpreter)
	argv := append([]string{sh.argv[0], file}, sh.argv[1:]...)
	return &shim.Order{Argv: argv, Env: sh.env, Dir: sh.dir, Gate: true}
}
