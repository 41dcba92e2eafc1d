//go:build race && !prove

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program builds ambit without the race detector. It returns the folder of the program, which scripts have in
// their PATH. Scripts start ambit more than a thousand times. With the race detector, each start takes three times
// as long. "make prove" runs the scripts with the race detector.
func program(t *testing.T) []string {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "ambit"), "../../cmd/ambit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink("ambit", filepath.Join(dir, "mcl-tools")); err != nil {
		t.Fatal(err)
	}
	return []string{dir}
}
