//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"os"
	"runtime"
)

func run(ctx context.Context, _ Spec) (Outcome, error) { return Outcome{}, check(ctx, Standard, "") }

func check(_ context.Context, t Tier, _ string) error {
	return lacks(t, []Missing{{"linux", "this is " + runtime.GOOS + " on " + runtime.GOARCH, "run programs on Linux, for example in a virtual machine"}})
}

// TempDir makes a folder that nobody else can enter.
func TempDir() (string, error) { return os.MkdirTemp("", "ambit.") }

// Survey tells what there is to isolate programs with.
func Survey(context.Context, string) []Finding {
	return []Finding{{Name: "sandbox", Detail: "programs are isolated on Linux only", Fix: "run programs on Linux, for example in a virtual machine"}}
}

// Pool keeps nothing where nothing can be isolated.
type Pool struct{}

// NewPool makes an empty pool.
func NewPool(int, bool) *Pool { return &Pool{} }

// Prepare reports what is missing.
func (*Pool) Prepare(ctx context.Context, _ Spec) error { return check(ctx, Standard, "") }

// Waiting is none.
func (*Pool) Waiting() int { return 0 }

// Close has nothing to do.
func (*Pool) Close() {}
