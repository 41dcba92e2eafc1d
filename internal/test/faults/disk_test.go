//go:build linux

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// small returns a command line that runs a command with a separate disk of 24 MB as AMBIT_HOME.
func (h *fixture) small(argv ...string) []string {
	return append([]string{bubblewrap(h.t), "--dev-bind", "/", "/", "--size", fmt.Sprint(24 << 20), "--tmpfs", h.home(), "--die-with-parent", "--"}, argv...)
}

// fill creates a file that fills its disk, and returns a function that removes the file.
func fill(t *testing.T, file string) (free func()) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDaemonOnAFullDisk fills the disk of a running daemon. Every answered call must be in the journal. All
// other calls must be refused without effect. The daemon must continue when there is space again.
func TestDaemonOnAFullDisk(t *testing.T) {
	h := newFixture(t, "-", 0)
	if err := os.Mkdir(h.home(), 0o700); err != nil {
		t.Fatal(err)
	}
	d := h.start(h.small(h.serving()...))
	answered := map[string]int{}
	refused := map[string]int{}
	call := func(tool string) {
		t.Helper()
		a, err := d.call(tool)
		switch {
		case err != nil:
			t.Fatal(err)
		case a.status == 200:
			answered[tool]++
		case a.Error.Code != "store_unavailable" || !strings.Contains(a.Error.Message, "space") || a.Error.Effect != "none":
			t.Errorf("the call of %s returned %s", tool, a.text)
		default:
			refused[tool]++
		}
	}
	tools := []string{"pay", "look"}
	for _, tool := range tools {
		call(tool)
	}
	free := fill(t, seenBy(d.pid)+filepath.Join(h.home(), "filler"))
	for range 3000 { // the daemon first uses up the preallocated space of the logs
		for _, tool := range tools {
			if refused[tool] < 3 {
				call(tool)
			}
		}
	}
	before := answered["pay"]
	if n := h.done(); n != before {
		t.Errorf("there were %d effects, but %d answered calls", n, before)
	}
	free()
	for _, tool := range tools {
		call(tool)
	}
	if answered["pay"] != before+1 {
		t.Error("calls still fail although the disk has space again")
	}
	if refused["pay"] == 0 || refused["look"] == 0 {
		t.Errorf("the disk was never full: %v answered, %v refused", answered, refused)
	}
	t.Logf("%v answered, %v refused", answered, refused)
	for _, tool := range tools {
		if n := d.recorded(tool); n != answered[tool] {
			t.Errorf("%s was answered %d times, but the journal has %d records", tool, answered[tool], n)
		}
	}
	d.bringHome()
	if n := h.whole(); n < answered["pay"]+answered["look"] {
		t.Errorf("the journal has %d verified records, but these calls were answered: %v", n, answered)
	}
}

// bringHome kills a daemon on a separate disk and copies the disk to the fixture's home.
func (d *daemon) bringHome() {
	d.h.t.Helper()
	inside := seenBy(d.pid)
	disk, err := os.OpenRoot(inside + d.h.home()) // this process keeps the disk mounted after the daemon has exited
	if err != nil {
		d.h.t.Fatal(err)
	}
	defer disk.Close()
	if err := unix.Kill(d.pid, unix.SIGKILL); err != nil {
		d.h.t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); err == nil; _, err = os.Readlink(inside) {
		time.Sleep(time.Millisecond) // poll interval
		if time.Now().After(deadline) {
			d.h.t.Fatal("the daemon did not exit within a minute")
		}
	}
	if err := errors.Join(disk.RemoveAll("run"), os.CopyFS(d.h.home(), disk.FS())); err != nil { // run contains a socket
		d.h.t.Fatal(err)
	}
}

// recorded returns the number of allowed calls to a tool in the journal.
func (d *daemon) recorded(tool string) (n int) {
	d.h.t.Helper()
	for before := ""; ; {
		text, err := d.send("GET", "/api/v1/journal?limit=1000&tool="+tool+before, "")
		var doc struct {
			Records []struct {
				Seq      int64
				Decision string
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(text.text), &doc)
		}
		if err != nil {
			d.h.t.Fatal(err, text.text)
		}
		if len(doc.Records) == 0 {
			return n
		}
		for _, r := range doc.Records {
			if r.Decision == "allow" {
				n++
			}
		}
		before = fmt.Sprintf("&before=%d", doc.Records[len(doc.Records)-1].Seq)
	}
}

// TestBackupOnAFullDisk makes a backup that does not fit on the disk. The backup must fail and
// leave no file.
func TestBackupOnAFullDisk(t *testing.T) {
	h := newFixture(t, "-", 0)
	if _, stderr, code := h.ambit("call", h.agent, "pay"); code != 0 {
		t.Fatal(stderr)
	}
	records := h.whole()
	disk := filepath.Join(h.dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bubblewrap(t), "--dev-bind", "/", "/", "--size", fmt.Sprint(64<<10), "--tmpfs", disk, "--",
		"sh", "-c", `cat /dev/zero >"$1/filler" 2>/dev/null; "$0" backup "$1/home.ambit" --plain; code=$?; rm "$1/filler"; ls -A "$1"; exit $code`, os.Args[0], disk)
	stdout, stderr, code := h.run(cmd)
	if code != 3 || !strings.Contains(stderr, "space") || strings.TrimSpace(stdout) != "" {
		t.Errorf("got exit code %d: %s; files left behind: %s", code, stderr, stdout)
	}
	if now := h.whole(); now != records {
		t.Errorf("the journal has %d records, want %d", now, records)
	}
}

// TestDaemonOnAReadOnlyHome checks that a daemon with a read-only home does not start and reports why.
func TestDaemonOnAReadOnlyHome(t *testing.T) {
	h := newFixture(t, "-", 0)
	if _, stderr, code := h.ambit("call", h.agent, "pay"); code != 0 {
		t.Fatal(stderr)
	}
	argv := append([]string{"--dev-bind", "/", "/", "--ro-bind", h.home(), h.home(), "--die-with-parent", "--"}, h.serving()...)
	stdout, stderr, code := h.run(exec.CommandContext(t.Context(), bubblewrap(t), argv...))
	if code != 3 || !strings.Contains(stdout, "cannot be written") || strings.Contains(stdout, "key_file") {
		t.Errorf("got exit code %d: %s %s", code, stdout, stderr)
	}
}
