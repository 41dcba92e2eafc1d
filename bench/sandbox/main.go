// Command sandbox measures what the sandbox adds to the start of a program: the
// same program started bare and with an empty environment, and in the sandbox,
// in turn. The sandbox's time is a whole run, to the removal of its cgroup.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/ambit-run/ambit/internal/sandbox"
)

const rounds = 40

func main() {
	ctx := context.Background()
	if err := sandbox.Check(ctx, sandbox.Standard, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Printf("start to end, p50 of %d, in ms\n%-12s %8s %8s %8s\n", rounds, "", "bare", "sandbox", "added")
	for _, argv := range [][]string{{"/usr/bin/true"}, {"/usr/bin/python3", "-c", "0"}, {"/usr/bin/node", "-e", "0"}} {
		var bare, boxed []time.Duration
		for range rounds {
			begun := time.Now()
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = []string{}
			if err := cmd.Run(); err != nil {
				fmt.Fprintln(os.Stderr, argv[0], err)
				os.Exit(1)
			}
			bare = append(bare, time.Since(begun))
			begun = time.Now()
			if out, err := sandbox.Run(ctx, sandbox.Spec{Argv: argv, CPU: 2}); err != nil || out.ExitCode != 0 {
				fmt.Fprintln(os.Stderr, argv[0], err, out.ExitCode)
				os.Exit(1)
			}
			boxed = append(boxed, time.Since(begun))
		}
		b, s := p50(bare), p50(boxed)
		fmt.Printf("%-12s %8.1f %8.1f %8.1f\n", argv[0][len("/usr/bin/"):], b, s, s-b)
	}
}

func p50(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}
