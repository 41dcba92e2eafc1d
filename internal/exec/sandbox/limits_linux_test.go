package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// When its context ends, a confined program gets SIGTERM and can finish its work. If it ignores SIGTERM, it is killed.
func TestEndsBySIGTERM(t *testing.T) {
	needConfined(t)
	const (
		// sigwait misses no signal. A signal handler would miss a signal that arrives just before the program begins to
		// sleep.
		finishes = `
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print('up', flush=True)
signal.sigwait([signal.SIGTERM])
open('done', 'w').write('saved')
`
		ignores = `
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
while True: time.sleep(600)
`
	)
	for name, tt := range map[string]struct {
		grace time.Duration
		code  string
		want  string
	}{
		"finishes":        {time.Minute, finishes, "saved"},
		"ignores":         {time.Millisecond, ignores, ""},
		"without a grace": {0, finishes, ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			_, err := Run(ctx, Spec{
				Tier: Confined, NoExec: true, Grace: tt.grace,
				Argv:   []string{"python3", "-c", tt.code},
				Mounts: []Mount{{Source: home, To: Home, Write: true, Give: true}},
				Talk: func(_ io.WriteCloser, stdout io.ReadCloser) {
					go func() {
						io.ReadFull(stdout, make([]byte, 2))
						cancel()
					}()
				},
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want context.Canceled", err)
			}
			if text, _ := os.ReadFile(filepath.Join(home, "done")); string(text) != tt.want {
				t.Errorf("the program wrote %q, want %q", text, tt.want)
			}
		})
	}
}

// A run does not start if its private folder exceeds the limit, and it ends if it fills the folder. The sandbox's /tmp
// is a disk of fixed size.
func TestPrivateFolderIsBounded(t *testing.T) {
	needConfined(t)
	home := t.TempDir()
	s := Spec{
		Tier: Confined, NoExec: true, DiskMB: 8, MemoryMB: 64, Wall: 20 * time.Second,
		Mounts: []Mount{{Source: home, To: Home, Write: true, Give: true}},
		Argv: []string{"python3", "-c", `
import os, time
try:
    with open('/tmp/big', 'wb', 0) as f:
        while True: f.write(b'x' * 65536)
except OSError as e: print(e.strerror, os.path.getsize('/tmp/big') >> 20, flush=True)
i = 0
try:
    while i < 20:
        with open('f%d' % i, 'wb', 0) as f: f.write(b'x' * (1 << 20))
        i += 1
    print('full', flush=True)
except OSError: pass
time.sleep(600)
`},
	}
	s.defaults()
	m, err := findProven(t.Context(), Confined, "")
	if err != nil {
		t.Fatal(err)
	}
	shape := shapeOf(&s)
	if shape.programs, err = findPrograms(&s); err != nil {
		t.Fatal(err)
	}
	r, err := m.prepare(shape)
	if err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	s.Talk = func(_ io.WriteCloser, stdout io.ReadCloser) {
		r.readers.Go(func() { io.Copy(&output, stdout) })
	}
	r.readers.Go(func() { r.watchQuotas(time.Millisecond) })
	out, _, err := r.execute(t.Context(), &s, order(&s, ""), time.Now())
	if err != nil || out.TooLarge != "disk" {
		t.Errorf("got %+v (error %v), want the disk too large", out, err)
	}
	if got := output.String(); !strings.HasPrefix(got, "No space left on device 8\n") && !strings.HasPrefix(got, "File too large 8\n") {
		t.Errorf("the program printed %q, want a full /tmp", got)
	}
	if _, err := Run(t.Context(), s); !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), home) {
		t.Errorf("got error %v, want a run that does not start because of %s", err, home)
	}
}

// Without cgroups, rlimits stop a fork bomb and a process that takes too much memory.
func TestLimitsWithoutCgroups(t *testing.T) {
	needConfined(t)
	m, err := findProven(t.Context(), Confined, "")
	if err != nil {
		t.Fatal(err)
	}
	alone := *m
	alone.groups = hierarchy{}
	run := func(code string) string {
		t.Helper()
		s := Spec{Tier: Confined, NoExec: true, Argv: python(code), PIDs: 40, MemoryMB: 256}
		s.defaults()
		out, _, err := alone.run(t.Context(), &s, "")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out.Stdout))
	}
	got := run(`
import os, signal
n = 0
try:
    while n < 500:
        if os.fork() == 0: signal.pause()
        n += 1
except OSError: pass
print(n <= 42, flush=True)
os._exit(0)
`)
	if got != "True" {
		t.Error("the program started more processes than its limit")
	}
	if got := run("try: bytearray(300 << 20); print('held')\nexcept MemoryError: print('refused')"); got != "refused" {
		t.Errorf("an allocation of 300 MB was %s, want refused", got)
	}
	if got := run("bytearray(100 << 20); print('held')"); got != "held" {
		t.Errorf("an allocation of 100 MB was %s, want held", got)
	}
}

// TestMovesWaitForTheMeasure checks that the program cannot move or link a file while ambit measures a private folder.
// Otherwise ambit could miss the file.
func TestMovesWaitForTheMeasure(t *testing.T) {
	needConfined(t)
	for _, move := range []string{"os.rename", "os.link"} {
		t.Run(move, func(t *testing.T) {
			s := Spec{
				Tier: Confined, NoExec: true, Wall: 20 * time.Second,
				Mounts: []Mount{{Source: t.TempDir(), To: Home, Write: true, Give: true}},
				Argv: python(`
import os, threading
open('a', 'w').close()
t = threading.Thread(target=lambda: ` + move + `('a', 'b'))
input()
t.start()
seen = 0
while t.is_alive():
    with open('/proc/self/task/%d/syscall' % t.native_id) as f: call = f.read().split()[0]
    seen += call in ('82', '86', '264', '265', '316', '37', '38', '276')
    if seen == 1000:  # ambit answers a call that does not wait much faster
        print('waits', os.listdir(), flush=True)
        break
t.join()
print('b' in os.listdir())
`),
			}
			s.defaults()
			m, err := findProven(t.Context(), Confined, "")
			if err != nil {
				t.Fatal(err)
			}
			shape := shapeOf(&s)
			if shape.programs, err = findPrograms(&s); err != nil {
				t.Fatal(err)
			}
			r, err := m.prepare(shape)
			if err != nil {
				t.Fatal(err)
			}
			r.moving.Lock()
			var first, rest string
			s.Talk = func(stdin io.WriteCloser, stdout io.ReadCloser) {
				r.readers.Go(func() {
					lines := bufio.NewReader(stdout)
					fmt.Fprintln(stdin)
					first, _ = lines.ReadString('\n')
					r.moving.Unlock()
					rest, _ = lines.ReadString('\n')
				})
			}
			if _, _, err := r.execute(t.Context(), &s, order(&s, ""), time.Now()); err != nil {
				t.Fatal(err)
			}
			if first != "waits ['a']\n" || rest != "True\n" {
				t.Errorf("the program printed %q and %q", first, rest)
			}
		})
	}
}

// A folder that cannot be measured with bounded work counts as too large.
func TestFolderSize(t *testing.T) {
	dir := t.TempDir()
	if got, err := folderSize(filepath.Join(dir, "none")); err != nil || got != 0 {
		t.Errorf("a missing folder has %d bytes", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if got, err := folderSize(dir); err != nil || got < 1<<20 || got > 1<<21 {
		t.Errorf("a folder with 1 MiB and a link has %d bytes", got)
	}
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxLevels+2)), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := folderSize(dir); err != nil || got != math.MaxInt64 {
		t.Errorf("a folder that is too deep has %d bytes", got)
	}
}
