//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"runtime"
)

func run(ctx context.Context, _ Spec) (Outcome, error) { return Outcome{}, check(ctx, "") }

func check(context.Context, string) error {
	return lacks(Standard, []Missing{{"linux", "this is " + runtime.GOOS + " on " + runtime.GOARCH, "run programs on Linux, for example in a virtual machine"}})
}

// Survey tells what there is to isolate programs with.
func Survey(context.Context, string) []Finding {
	return []Finding{{Name: "sandbox", Detail: "programs are isolated on Linux only", Fix: "run programs on Linux, for example in a virtual machine"}}
}
