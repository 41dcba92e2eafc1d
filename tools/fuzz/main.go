// Command fuzz runs every fuzz target of the module for a bounded time each:
//
//	make fuzz && bin/tools/fuzz -time 3s ./manifest/...
//
// It is not a loop over go test, for four reasons.
//
// A package is built once, and not once for each of its targets. With nothing
// cached, building is most of the work.
//
// The time of a target begins when its seeds have passed and ends with an
// interrupt. Given a -fuzztime, Go's own fuzzer can take the end of that time for a
// failure ("context deadline exceeded") on a busy machine; an interrupt it never does.
//
// What fails is told apart. An input that breaks a target is a finding: it is
// printed, it stays in the package's testdata/fuzz, and nothing is tried again. A
// worker killed from outside, with no input written, says nothing about the target,
// and the target gets one more try. Anything else fails as it is.
//
// An input that hangs is found. Go's fuzzer takes ten seconds to call it that, and
// at the end of a shorter time drops the worker without a word. Here a worker that
// has to be dropped earns its target another try that is long enough.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	each := flag.Duration("time", 10*time.Second, "how long each target is fuzzed")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	if err := fuzz(ctx, *each, patterns); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		code = 1
	}
	stop()
	os.Exit(code)
}

// fuzz builds and runs the packages one after the other. What fails does not keep
// the rest from being run.
func fuzz(ctx context.Context, each time.Duration, patterns []string) error {
	begun := time.Now()
	packages, err := list(ctx, patterns)
	if err != nil {
		return err
	}
	cache, err := output(ctx, "", "env", "GOCACHE")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	var failed []string
	fails := func(what string, err error) {
		failed = append(failed, what)
		fmt.Fprintf(os.Stderr, "fuzz: %s: %v\n", what, err)
	}
	targets := 0
	for _, p := range packages {
		targets += len(p.targets)
		binary := filepath.Join(work, "fuzz.test")
		building := time.Now()
		_, err := output(ctx, p.Dir, "test", "-c", "-vet=off", "-fuzz", ".", "-o", binary, ".")
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while building %s", p.ImportPath)
		}
		if err != nil {
			fails(p.ImportPath, err)
			continue
		}
		fmt.Printf("fuzz: built %s in %.0fs\n", p.ImportPath, time.Since(building).Seconds())
		for _, name := range p.targets {
			t := &target{
				pkg:    p.ImportPath,
				name:   name,
				binary: binary,
				dir:    p.Dir,
				cache:  filepath.Join(strings.TrimSpace(cache), "fuzz", p.ImportPath),
				tmp:    filepath.Join(work, "tmp"),
				each:   each,
			}
			runs, err := t.run(ctx)
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in %s", t)
			}
			if err != nil {
				fails(t.String(), err)
				continue
			}
			fmt.Printf("fuzz: %s: %d runs\n", t, runs)
		}
	}
	if targets == 0 {
		return fmt.Errorf("found no fuzz target in %s", strings.Join(patterns, " "))
	}
	if len(failed) > 0 {
		return fmt.Errorf("of %d targets in %d packages, these failed:\n  %s", targets, len(packages), strings.Join(failed, "\n  "))
	}
	fmt.Printf("fuzz: %d targets in %d packages, %v\n", targets, len(packages), time.Since(begun).Round(time.Second))
	return nil
}

// output runs go, and has what it printed in the error.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, wrong.String())
	}
	return string(out), nil
}
