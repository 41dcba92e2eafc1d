package guard_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// The fuzzed text is repeated up to this size, so that its cost does not depend on the start of a scan.
const costSize = 64 << 10

// maxCost is how many times the CPU time of prose a scan may take. Fuzzing counts branches in the scanned code, which makes
// slow texts slower.
const maxCost = 30

// FuzzCost searches for texts that are slow to scan. It measures the CPU time of one thread, and compares it with prose in
// the same process.
func FuzzCost(f *testing.F) {
	for _, unit := range []string{
		"live_live_live_", "bearer SWMKEY-1-live_live_x", `\nsk_test_UUID-----BEGIN A-Za-z0-9` + "\u200bAAAAAAAAAAAAAAAAAAAAAA", "kind: secret data: aGVsbG8=",
		"password=hunter2x!9 ", "QUFBQUFB", "%41&#65;\u0430", "Cookie: a=b; ", "://a:b@", "sec-c-contribsysdp.\u200bPRODUCTIONkind: secret",
	} {
		f.Add([]byte(unit))
	}
	prose := sync.OnceValue(func() float64 { return cost(readProse(f)) })
	f.Fuzz(func(t *testing.T, unit []byte) {
		if len(unit) == 0 {
			return
		}
		text := bytes.Repeat(unit, costSize/len(unit)+1)[:costSize]
		found := guard.Scan(text)
		if fuzzing := flag.Lookup("test.fuzz"); fuzzing.Value.String() == "" {
			return // measure only while fuzzing, because other tests that run at the same time distort the result
		}
		if got := cost(text) / prose(); got > maxCost {
			t.Fatalf("a scan of %q, repeated, takes %.0f times the CPU time of prose; it has %d findings", unit, got, len(found))
		}
	})
}

func readProse(t testing.TB) []byte {
	var text []byte
	files, err := filepath.Glob("../../../docs/*.md")
	for _, name := range files {
		page, readErr := os.ReadFile(name)
		if err = readErr; err != nil {
			break
		}
		text = append(text, page...)
	}
	if err != nil || len(text) < costSize {
		t.Fatalf("found %d bytes of prose: %v", len(text), err)
	}
	return text[:costSize]
}

// cost returns the CPU time of a scan in nanoseconds. It measures the scan several times and returns the shortest time.
func cost(text []byte) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := 0.0
	for range 5 {
		start := threadTime()
		guard.Scan(text)
		if used := threadTime() - start; best == 0 || used < best {
			best = used
		}
	}
	return max(best, 1)
}

func threadTime() float64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err) // ClockGettime cannot fail with these arguments
	}
	return float64(now.Nano())
}
