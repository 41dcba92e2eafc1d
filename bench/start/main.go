// Command start measures the time from the start of a program to its answer to initialize.
//
//	bench/run start
//
// It compares "ambit run", started with the default agent, and a minimal Go program. The minimal program reads one line
// and writes one line. The two programs are started in turn. The command needs bin/ambit, which make build creates.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"

func main() {
	rounds := flag.Int("rounds", 51, "number of starts")
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	agent := flag.String("agent", "agents/default.json", "the agent to run")
	flag.Parse()
	if err := run(*ambit, *agent, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ambit, agent string, rounds int) error {
	dir, err := os.MkdirTemp("", "start")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bare := filepath.Join(dir, "bare")
	if out, err := exec.Command("go", "build", "-C", "bench", "-o", bare, "./start/bare").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	env := append(os.Environ(), "AMBIT_HOME="+filepath.Join(dir, "home"))
	var theirs, ours []time.Duration
	for i := range rounds + 1 {
		took, err := first(env, bare)
		if err != nil {
			return err
		}
		took2, err := first(env, ambit, "run", agent)
		if err != nil {
			return err
		}
		if i > 0 { // the first start does not count, because it reads the binary from the disk
			theirs, ours = append(theirs, took), append(ours, took2)
		}
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	show := func(name string, took []time.Duration) {
		fmt.Printf("%-12s p50 %6.1f ms   p90 %6.1f ms\n", name, ms(took[len(took)/2]), ms(took[len(took)*9/10]))
	}
	fmt.Printf("time from the start of the program to its answer to initialize, %d starts each\n", rounds)
	show("bare Go", theirs)
	show("ambit run", ours)
	fmt.Printf("ratio of the medians %.1f\n", float64(ours[len(ours)/2])/float64(theirs[len(theirs)/2]))
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// first starts a program, waits for its first line of output, and kills it. It returns the time until the line
// arrived.
func first(env []string, argv ...string) (time.Duration, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = io.WriteString(in, hello)
	line, readErr := bufio.NewReader(out).ReadString('\n')
	took := time.Since(began)
	// Kill the program, so that its background work does not disturb the next start.
	killErr := cmd.Process.Kill()
	_ = cmd.Wait() // Wait always fails, because the program was killed
	if err := errors.Join(err, readErr, killErr); err != nil {
		return 0, err
	}
	if !strings.Contains(line, `"result"`) {
		return 0, fmt.Errorf("%s printed %s", argv[0], line)
	}
	return took, nil
}
