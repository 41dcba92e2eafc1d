//go:build prove

package adversary

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/test/overlay"
)

// TestWithoutItsMechanism removes every listed mechanism and requires the test of its promise to fail. The working
// tree stays unchanged: go test reads the changed file through an overlay. Two removals run on each core, because the
// linker does not use every core, and many tests wait for servers.
func TestWithoutItsMechanism(t *testing.T) {
	var all sync.WaitGroup
	turns := make(chan struct{}, 2*runtime.NumCPU())
	for _, r := range removals {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			t.Run(r.id, r.fails)
		})
	}
	all.Wait()
}

// fails runs the removal's test without the mechanism and requires the test to fail.
func (r removal) fails(t *testing.T) {
	file := filepath.Join(root, r.file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list := overlay.Files(t, map[string]string{file: strings.Replace(string(text), r.old, r.new, 1)})
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-exec", "env -u GOGC", "-overlay", list,
		"-timeout", "3m", "-run", "^"+r.test+"$", r.pkg)
	cmd.Dir = root
	// With CI, the tests fail instead of being skipped if something is missing. With GOGC, the compiler and the linker
	// need a fifth less time.
	cmd.Env = append(os.Environ(), "CI=true", "GOGC=400")
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		t.Fatalf("the program does not build without the mechanism:\n%s", text)
	case err == nil:
		t.Fatalf("%s: %s passes although its mechanism in %s is removed", r.pkg, r.test, r.file)
	case !strings.Contains(text, "--- FAIL: "+r.test):
		t.Fatalf("%s did not fail, but something else did:\n%s", r.test, text)
	}
}
