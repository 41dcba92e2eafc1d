// Command start measures how long a client waits for its first answer: from the
// start of the program to its answer to initialize.
//
//	bench/run start
//
// "ambit run" with the default agent is beside the least that a program in Go
// can do: read a line and write one. Both are started anew every time and take
// turns, so that whatever else the machine does hits both. bin/ambit must be
// there: make build.
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
	rounds := flag.Int("rounds", 51, "starts of each")
	ambit := flag.String("ambit", "bin/ambit", "the program to measure")
	agent := flag.String("agent", "agents/default.json", "the agent that it runs")
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
		if i > 0 { // the first start reads the program from the disk
			theirs, ours = append(theirs, took), append(ours, took2)
		}
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	show := func(name string, took []time.Duration) {
		fmt.Printf("%-12s p50 %6.1f ms   p90 %6.1f ms\n", name, ms(took[len(took)/2]), ms(took[len(took)*9/10]))
	}
	fmt.Printf("initialize answered after the start of the program, %d starts each\n", rounds)
	show("bare Go", theirs)
	show("ambit run", ours)
	fmt.Printf("ratio of the medians %.1f\n", float64(ours[len(ours)/2])/float64(theirs[len(theirs)/2]))
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// first is the time until a program's first line. Then it is ended.
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
	// What it is still doing in the background is no business of the next one.
	killErr := cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if err := errors.Join(err, readErr, killErr); err != nil {
		return 0, err
	}
	if !strings.Contains(line, `"result"`) {
		return 0, fmt.Errorf("%s said %s", argv[0], line)
	}
	return took, nil
}
