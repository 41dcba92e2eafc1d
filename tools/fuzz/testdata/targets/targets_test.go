package targets

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
)

func FuzzHolds(f *testing.F) {
	f.Add([]byte("seed"))
	f.Fuzz(func(*testing.T, []byte) {})
}

func FuzzBreaks(f *testing.F) {
	f.Add([]byte("seed"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if string(b) != "seed" {
			t.Fatal("broken by another input")
		}
	})
}

func FuzzSeedBreaks(f *testing.F) {
	f.Add([]byte("seed"))
	f.Fuzz(func(t *testing.T, _ []byte) { t.Fatal("broken by its seed") })
}

// FuzzKilledOnce simulates a worker that the kernel kills: the first worker that gets an input other than
// the seed kills itself.
func FuzzKilledOnce(f *testing.F) {
	f.Add([]byte("seed"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if string(b) != "seed" && worker() && os.Mkdir("killed", 0o700) == nil {
			die()
		}
	})
}

func FuzzKilledAlways(f *testing.F) {
	f.Add([]byte("seed"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if string(b) != "seed" && worker() {
			die()
		}
	})
}

func FuzzHangs(f *testing.F) {
	f.Add([]byte("seed"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if string(b) != "seed" && worker() {
			select {}
		}
	})
}

// FuzzExpires prints the message that Go's fuzzer prints if it is interrupted by its time limit on a busy machine.
func FuzzExpires(f *testing.F) {
	fmt.Print("fuzz: elapsed: 0s, now fuzzing with 2 workers\n--- FAIL: FuzzExpires (1.00s)\n    context deadline exceeded\nFAIL\n")
	os.Exit(1)
}

func worker() bool { return slices.Contains(os.Args, "-test.fuzzworker") }

func die() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
