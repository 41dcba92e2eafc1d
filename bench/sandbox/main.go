// Command sandbox measures how much time the sandbox adds to a program's run. It compares these ways to run a
// program:
//
//   - bare: without a sandbox, with an empty environment;
//   - bubblewrap: with bubblewrap alone, which sets up namespaces and mounts;
//   - cold: in a sandbox that is created for the run;
//   - warm: in a sandbox from the pool;
//   - interpreter ahead: in a sandbox from the pool, in which the interpreter is already running.
//
// Every round measures each way once. Each time covers a whole run, including the removal of the cgroup.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	// The sandbox starts this binary again. It must contain the same packages as ambit's binary.
	_ "github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
)

const rounds = 40

func main() {
	if err := measure(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type way struct {
	name    string
	prepare func(argv []string) error // called before and after each run; its time does not count
	run     func(argv []string) error
	took    []time.Duration
}

func measure(ctx context.Context) error {
	if err := sandbox.Check(ctx, sandbox.Standard, ""); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ambit-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644)); err != nil {
		return err
	}
	plain, ahead := sandbox.NewPool(2, false), sandbox.NewPool(2, true)
	defer plain.Close()
	defer ahead.Close()
	spec := func(argv []string, pool *sandbox.Pool) sandbox.Spec {
		return sandbox.Spec{Argv: argv, CPU: 2, Mounts: []sandbox.Mount{{Source: dir, To: dir}}, Pool: pool}
	}
	boxed := func(name string, pool *sandbox.Pool) *way {
		w := &way{name: name, prepare: func([]string) error { return nil }}
		if pool != nil {
			w.prepare = func(argv []string) error { return pool.Prepare(ctx, spec(argv, nil)) }
		}
		w.run = func(argv []string) error {
			out, err := sandbox.Run(ctx, spec(argv, pool))
			if err == nil && out.ExitCode != 0 {
				err = fmt.Errorf("%s: exit code %d", argv[0], out.ExitCode)
			}
			return err
		}
		return w
	}
	outside := func(name string, before ...string) *way {
		return &way{name: name, prepare: func([]string) error { return nil }, run: func(argv []string) error {
			argv = append(slices.Clone(before), append([]string{"/usr/bin/" + argv[0]}, argv[1:]...)...)
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = []string{}
			return cmd.Run()
		}}
	}
	bwrap := strings.Fields("bwrap --unshare-all --die-with-parent --new-session --clearenv --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib" +
		" --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --ro-bind " + dir + " " + dir + " --")
	fmt.Printf("start to end, p50 of %d, in ms\n", rounds)
	for _, argv := range [][]string{{"true"}, {"python3", dir + "/empty"}, {"node", dir + "/empty"}} {
		ways := []*way{outside("bare"), outside("bubblewrap", bwrap...), boxed("cold", nil), boxed("warm", plain)}
		if argv[0] != "true" {
			ways = append(ways, boxed("interpreter ahead", ahead))
		}
		for range rounds {
			for _, w := range ways {
				if err := w.prepare(argv); err != nil {
					return err
				}
				begun := time.Now()
				if err := w.run(argv); err != nil {
					return errors.Join(fmt.Errorf("%s %s", w.name, argv[0]), err)
				}
				w.took = append(w.took, time.Since(begun))
				if err := w.prepare(argv); err != nil {
					return err
				}
			}
		}
		bare := p50(ways[0].took)
		fmt.Printf("%-8s bare %5.1f", argv[0], bare)
		for _, w := range ways[1:] {
			fmt.Printf("   %s %5.1f (%+.1f)", w.name, p50(w.took), p50(w.took)-bare)
		}
		fmt.Println()
	}
	return nil
}

func p50(d []time.Duration) float64 {
	d = slices.Sorted(slices.Values(d))
	return float64(d[len(d)/2].Microseconds()) / 1000
}
