//go:build linux

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bubblewrap returns the path of bwrap. Tests use bwrap to create small and read-only disks without being
// root.
func bubblewrap(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("bwrap")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("bwrap is not installed: run scripts/setup")
		}
		t.Skip("bwrap is not installed")
	}
	return path
}

// TestFullDisk checks that calls on a full disk are refused without effect. The calls must work when there is
// space again, and no record may be lost.
func TestFullDisk(t *testing.T) {
	h := newFixture(t, "-", 0)
	if err := os.Mkdir(h.home(), 0o700); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`
ambit() { "$BINARY" "$@"; }
ambit call %[1]s pay >/dev/null || exit 11
cat /dev/zero > "$AMBIT_HOME/filler" 2>/dev/null
for i in 1 2 3 4 5 6 7 8; do ambit call %[1]s pay > "$OUT/full.$i.out" 2> "$OUT/full.$i.err"; echo $? >> "$OUT/codes"; done
rm "$AMBIT_HOME/filler"
ambit call %[1]s pay >/dev/null || exit 12
ambit journal verify --json || exit 13
`, h.agent)
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), bubblewrap(t), "--dev-bind", "/", "/", "--size", fmt.Sprint(24<<20), "--tmpfs", h.home(), "--", "sh", "-c", script)
	h.env = append(h.env, "OUT="+out, "BINARY="+os.Args[0])
	stdout, stderr, code := h.run(cmd)
	if code != 0 {
		t.Fatalf("got exit code %d: %s %s", code, stdout, stderr)
	}
	codes, err := os.ReadFile(filepath.Join(out, "codes"))
	if err != nil {
		t.Fatal(err)
	}
	paid := 2
	for i, c := range strings.Fields(string(codes)) {
		stderr, err := os.ReadFile(filepath.Join(out, fmt.Sprintf("full.%d.err", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case c == "0":
			paid++ // the disk still had space for this call
		case !strings.Contains(string(stderr), "space") || strings.Contains(string(stderr), "panic"):
			t.Errorf("call %d exited with %s: %s", i+1, c, stderr)
		}
	}
	if !strings.Contains(string(codes), "3") && !strings.Contains(string(codes), "1") {
		t.Error("the disk was never full")
	}
	if n := h.done(); n != paid {
		t.Errorf("there were %d effects, but %d answered calls", n, paid)
	}
}

// TestReadOnlyHome checks that calls with a read-only home are refused with the reason.
func TestReadOnlyHome(t *testing.T) {
	h := newFixture(t, "-", 0)
	if _, stderr, code := h.ambit("call", h.agent, "pay"); code != 0 {
		t.Fatal(stderr)
	}
	records := h.whole()
	cmd := exec.CommandContext(t.Context(), bubblewrap(t), "--dev-bind", "/", "/", "--ro-bind", h.home(), h.home(), "--", os.Args[0], "call", h.agent, "pay")
	stdout, stderr, code := h.run(cmd)
	if code != 3 || !strings.Contains(stderr, "cannot be written") || strings.Contains(stdout, "paid") {
		t.Errorf("got exit code %d: %s %s", code, stdout, stderr)
	}
	if n := h.done(); n != 1 {
		t.Errorf("there were %d effects, want 1", n)
	}
	if now := h.whole(); now != records {
		t.Errorf("the journal has %d records, want %d", now, records)
	}
}

// TestStoreGone moves the store away while a daemon uses it. Calls are refused without effect until the
// store is back.
func TestStoreGone(t *testing.T) {
	h := newFixture(t, "-", 0)
	d := h.serve()
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Fatalf("the call returned %+v, %v", a, err)
	}
	store := filepath.Join(h.home(), "state.db")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	a, err := d.pay()
	if err != nil || a.Error.Code != "store_unavailable" || a.Error.Message == "" {
		t.Errorf("the call returned %+v, %v", a, err)
	}
	if n := h.done(); n != 1 {
		t.Errorf("there were %d effects, want 1: a call had an effect while the store was gone", n)
	}
	if err := os.Rename(store+".away", store); err != nil {
		t.Fatal(err)
	}
	h.until("the store is used again", func() bool { a, err := d.pay(); return err == nil && a.status == 200 && a.Error.Code == "" })
	if n, allowed := h.done(), count(h.decisions(), "allow"); n != allowed {
		t.Errorf("there were %d effects, but the journal has %d allowed calls", n, allowed)
	}
	h.whole()
}

func count(list []string, what string) (n int) {
	for _, one := range list {
		if one == what {
			n++
		}
	}
	return n
}

// TestLateAnswer covers an answer that arrives after the timeout, when the outcome of the call is recorded as
// unknown. The answer must settle the call. The call must not be repeated.
func TestLateAnswer(t *testing.T) {
	h := newFixture(t, "", 500)
	d := h.serve()
	a, err := d.pay()
	if err != nil || a.Error.Effect != "unknown" || a.Error.Message == "" {
		t.Fatalf("the call returned %+v, %v", a, err)
	}
	if got := h.decisions(); !slices.Equal(got, []string{"unknown"}) {
		t.Errorf("before the late answer, the journal has the decisions %v", got)
	}
	h.open()
	h.until("the late answer settles the call", func() bool { return slices.Equal(h.decisions(), []string{"unknown", "allow"}) })
	if n := h.done(); n != 1 {
		t.Errorf("there were %d effects, want 1", n)
	}
	h.whole()
}

// TestServerEndsInACall covers a server that exits during a call. The outcome of the call must be
// unknown, and the call must not be repeated.
func TestServerEndsInACall(t *testing.T) {
	h := newFixture(t, "dies", 0)
	d := h.serve()
	a, err := d.pay()
	if err != nil || a.Error.Effect != "unknown" {
		t.Fatalf("the call returned %+v, %v", a, err)
	}
	if n, got := h.done(), h.decisions(); n != 1 || !slices.Equal(got, []string{"unknown"}) {
		t.Errorf("there were %d effects and the decisions %v, want 1 and one unknown", n, got)
	}
	stdout, stderr, code := h.ambit("journal", "show", "--unknown")
	if code != 0 || !strings.Contains(stdout, "pay") {
		t.Errorf("the unknown call is not listed: %s %s", stdout, stderr)
	}
	h.whole()
}
