package targets

import (
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

func worker() bool { return slices.Contains(os.Args, "-test.fuzzworker") }

func die() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
