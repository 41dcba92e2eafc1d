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

// TestRunOnATakenPort checks what scripts/run does if its port is in use. Before scripts/run downloads
// anything, it must report the problem and how to fix it.
func TestRunOnATakenPort(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:7411"); err == nil {
		defer l.Close()
	} // if the port is already in use, another process uses it
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(root, "scripts", "run")).CombinedOutput()
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.ExitCode() != 3 {
		t.Fatalf("scripts/run exited with %v, want exit code 3: %s", err, out)
	}
	for _, want := range []string{"run: port 7411 is in use", "scripts/run --listen 127.0.0.1:0"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
}
