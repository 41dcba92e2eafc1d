//go:build prove

package soak

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/test/overlay"
)

// TestPlantedLeaksAreSeen adds a leak to every start of a tool server, and checks that the soak test reports
// the leak. The soak test lasts a fifth of its usual time here, with a fifth of the starts, so each start leaks five times.
func TestPlantedLeaksAreSeen(t *testing.T) {
	for name, leak := range map[string]struct{ plant, want string }{
		"a file":      {`func plant() { _, _ = syscall.Open("/dev/null", syscall.O_RDONLY, 0) }`, "resources leak"},
		"a goroutine": {`func plant() { go func() { _ = syscall.Getpid(); select {} }() }`, "resources leak"},
		"memory":      {`var kept [][]byte; func plant() { kept = append(kept, make([]byte, 4<<20+syscall.Getpid()&1)) }`, "memory grows"},
	} {
		t.Run(name, func(t *testing.T) {
			out := soakWith(t, "package toolserver\n\nimport \"syscall\"\n\n"+leak.plant+"\n")
			if !strings.Contains(out, leak.want) {
				t.Errorf("the soak test does not report the leak:\n%s", out)
			}
		})
	}
}

// soakWith runs a short soak test with an additional source file. The function plant in this file is called at
// every start of a tool server.
func soakWith(t *testing.T, planted string) string {
	t.Helper()
	const source = "../../exec/toolserver"
	text, err := os.ReadFile(filepath.Join(source, "connect.go"))
	if err != nil {
		t.Fatal(err)
	}
	const start = "func (s *server) launch(ctx context.Context, l *plan, p *Proof) (*mcpwire.Conn, *process, error) {\n"
	if strings.Count(string(text), start) != 1 {
		t.Fatal("the function launch in connect.go has changed: adapt the patch in this test")
	}
	list := overlay.Files(t, map[string]string{
		filepath.Join(source, "connect.go"): strings.Replace(string(text), start, start+"\tfor range 5 {\n\t\tplant()\n\t}\n", 1),
		filepath.Join(source, "planted.go"): planted,
	})
	cmd := exec.CommandContext(t.Context(), "go", "test", "-tags", "prove", "-overlay", list, "-run", "^TestSoak$", "-count=1", ".")
	cmd.Env = append(os.Environ(), "AMBIT_SOAK=60s")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("the soak test passes in spite of the leak")
	}
	return string(out)
}
