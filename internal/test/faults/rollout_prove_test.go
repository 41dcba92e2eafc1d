//go:build linux && prove

package faults

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// ambitBefore builds ambit as it was before the newest schema step was added.
func ambitBefore(t *testing.T) string {
	t.Helper()
	steps, err := filepath.Glob("../../store/state/migrations/*.sql")
	if err != nil || len(steps) == 0 {
		t.Fatalf("found no schema steps: %v", err)
	}
	git := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", "../../.."}, args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, stderr.String())
		}
		return out
	}
	newest := "internal/" + strings.TrimPrefix(slices.Max(steps), "../../")
	added := strings.TrimSpace(string(git("log", "-1", "--follow", "--diff-filter=A", "--format=%H", "--", newest)))
	if added == "" {
		t.Fatalf("git does not know when %s was added: this test needs the complete history of the repository", newest)
	}
	dir := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(git("archive", added+"^"))
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	binary := filepath.Join(dir, "ambit-before")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/ambit")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return binary
}

// TestRollout runs two daemons with the same agent and store: one from before the newest schema step, and a
// current one. Both accept calls, replay each other's answers and share the journal. The old daemon cannot
// start again.
func TestRollout(t *testing.T) {
	before, now := ambitBefore(t), os.Args[0]
	cluster := statetest.NewCluster(t)
	h := newFixture(t, "-", 0)
	store := []string{"--store", cluster.Place()}
	h.binary = before
	old := h.serve(store...)
	pay := func(d *daemon, key string) {
		t.Helper()
		if a, err := d.send("POST", "/api/v1/agents/till/call", `{"tool":"pay","arguments":{},"idempotency_key":"`+key+`"}`); err != nil || a.status != 200 {
			t.Errorf("calling with the key %s: got %+v, %v", key, a, err)
		}
	}
	pay(old, "one")
	h.binary = now
	fresh := h.serve(store...)
	for i, key := range []string{"one", "two", "three", "two", "four"} {
		pay([]*daemon{fresh, old}[i%2], key) // each daemon also gets the keys of the other daemon
	}
	pay(fresh, "three")
	pay(old, "four")
	if n := h.done(); n != 4 {
		t.Errorf("four keys had %d effects, want 4", n)
	}
	if n := h.whole(store...); n < 8 {
		t.Errorf("the journal has %d records, want at least 8", n)
	}
	if stdout, stderr, code := h.run(exec.CommandContext(t.Context(), before, h.serving(store...)[1:]...)); code == 0 || !strings.Contains(stderr+stdout, "newer") {
		t.Errorf("starting the old daemon again: got exit code %d: %s%s", code, stdout, stderr)
	}
}
