//go:build unix

package docs

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRunOnATakenPort: make run says at once that its port is taken, and what to
// do, before it fetches anything.
func TestRunOnATakenPort(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:7411"); err == nil {
		defer l.Close()
	} // else somebody else has it, which is as good
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(root, "scripts", "run")).CombinedOutput()
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.ExitCode() != 3 {
		t.Fatalf("it ended with %v: %s", err, out)
	}
	for _, want := range []string{"run: port 7411 of this machine is taken", "scripts/run --listen 127.0.0.1:0"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("there is no %q in %s", want, out)
		}
	}
}
