//go:build race && !prove

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the folder of the ambit that scripts call. They start it more than a
// thousand times, and under the race detector a start takes three times as long,
// so here it goes without: make prove runs all of them with it.
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
