//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"os"
	"runtime"
)

func run(ctx context.Context, _ Spec) (Outcome, error) { return Outcome{}, check(ctx, Standard, "") }

func check(_ context.Context, t Tier, _ string) error {
	return unavailable(t, Missing{"linux", "this is " + runtime.GOOS + " on " + runtime.GOARCH, useLinux})
}

const useLinux = "run programs on Linux, for example in a virtual machine"

// TempDir makes a folder that other users cannot enter.
func TempDir() (string, error) { return os.MkdirTemp("", "ambit.") }

// Survey reports that Linux is required.
func Survey(context.Context, string) []Finding {
	return []Finding{{Name: "sandbox", Detail: "programs can be isolated only on Linux", Fix: useLinux}}
}

// Pool is always empty on this system.
type Pool struct{}

// NewPool returns an empty pool.
func NewPool(int, bool) *Pool { return &Pool{} }

// Prepare reports that Linux is required.
func (*Pool) Prepare(ctx context.Context, _ Spec) error { return check(ctx, Standard, "") }

// Waiting returns 0.
func (*Pool) Waiting() int { return 0 }

// Close does nothing.
func (*Pool) Close() {}
