// Command fuzz runs every fuzz target of the module for a bounded time each:
//
//	make fuzz && bin/tools/fuzz -time 3s ./manifest/...
//
// It is not a loop over go test, for four reasons:
//
//   - It builds a package once, not once for each target. Without a cache, building is most of the work.
//   - The time of a target starts when its seeds have passed, and ends with an interrupt. With -fuzztime, Go's fuzzer may
//     report the end of the time as a failure ("context deadline exceeded") on a busy machine. With an interrupt it does
//     not.
//   - It distinguishes failures. An input that breaks a target is a finding: it is printed, stays in the package's
//     testdata/fuzz, and is not retried. A worker that was killed from outside without writing an input shows nothing about
//     the target, so the target is retried once. All other failures are reported as they are.
//   - It finds inputs that hang. Go's fuzzer needs ten seconds to detect a hang, and silently drops a busy worker at the end
//     of a shorter time. If that happens, this command retries the target for long enough.
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

// fuzz builds and runs the packages one after the other, and continues after failures.
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
	fail := func(name string, err error) {
		failed = append(failed, name)
		fmt.Fprintf(os.Stderr, "fuzz: %s: %v\n", name, err)
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
			fail(p.ImportPath, err)
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
				fail(t.String(), err)
				continue
			}
			fmt.Printf("fuzz: %s: %d runs\n", t, runs)
		}
	}
	if targets == 0 {
		return fmt.Errorf("found no fuzz target in %s", strings.Join(patterns, " "))
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d targets failed:\n  %s", len(failed), targets, strings.Join(failed, "\n  "))
	}
	fmt.Printf("fuzz: %d targets in %d packages, %v\n", targets, len(packages), time.Since(begun).Round(time.Second))
	return nil
}

// output runs go and returns its output. An error contains what go wrote to stderr.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}
