// Command validate compares two validators of manifests: ambit, and ajv with compiled schemas. Both get the same
// files and the same CPU core.
//
//	bench/run validate
//
// The command writes 10,000 manifests of all four dialects into a temporary folder. Nine in ten are valid. It starts
// each validator once, and then lets them take turns. The first rounds are for warm-up. The command measures
// validation from files and from memory.
//
// The table shows wall-clock time and the CPU time of the whole process, including garbage collection and compiler
// threads. ambit does more work for each manifest than ajv. It detects the dialect, while ajv is given the schema. It
// also records locations, searches for secrets and hidden characters, resolves references between fields, and writes
// a message for every problem.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/schema"
)

// round is the result of one validator in one round. The costs are in the order of agent.Dialects.
type round struct {
	Valid  int    `json:"valid"`
	Disk   []cost `json:"disk"`
	Memory []cost `json:"memory"`
	// Allocs and Bytes are the number and the size of the allocations for one manifest in memory. Only ambit sets
	// them.
	Allocs uint64 `json:"allocs"`
	Bytes  uint64 `json:"bytes"`
}

// cost is the time for all manifests of one dialect, in nanoseconds.
type cost struct {
	Files int   `json:"files"`
	Wall  int64 `json:"wall"`
	CPU   int64 `json:"cpu"`
}

func main() {
	count := flag.Int("n", 10_000, "number of manifests")
	rounds := flag.Int("rounds", 15, "number of rounds")
	serve := flag.String("serve", "", "act as the ambit process of the comparison: validate this folder once for each line of input")
	flag.Parse()
	var err error
	if *serve != "" {
		err = serveAmbit(*serve)
	} else {
		err = compare(*count, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// warmUp is the number of rounds that do not count. JavaScript code becomes fast only after a few rounds.
const warmUp = 4

func compare(count, rounds int) error {
	dir, err := os.MkdirTemp("", "ambit-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, schemas := filepath.Join(dir, "files"), filepath.Join(dir, "schemas")
	if err := errors.Join(os.Mkdir(files, 0o755), os.Mkdir(schemas, 0o755)); err != nil {
		return err
	}
	for _, d := range agent.Dialects {
		if err := os.WriteFile(filepath.Join(schemas, string(d)+".json"), schema.Of(d), 0o644); err != nil {
			return err
		}
	}
	size, err := generate(files, count)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ambit, err := start(self, "-serve", files)
	if err != nil {
		return err
	}
	ajv, err := start("node", "bench/validate/ajv.mjs", files, schemas)
	if err != nil {
		return errors.Join(err, ambit.stop())
	}
	var ours, theirs []round
	for range warmUp + rounds {
		a, err1 := ambit.turn()
		b, err2 := ajv.turn()
		if err := errors.Join(err1, err2); err != nil {
			return errors.Join(err, ambit.stop(), ajv.stop())
		}
		ours, theirs = append(ours, a), append(theirs, b)
	}
	if err := errors.Join(ambit.stop(), ajv.stop()); err != nil {
		return err
	}
	if ours[0].Valid != theirs[0].Valid {
		return fmt.Errorf("the validators disagree: of %d manifests, %d are valid for ambit and %d for ajv", count, ours[0].Valid, theirs[0].Valid)
	}
	fmt.Printf("validate %d manifests (%.1f MB, %d valid), one core, median of %d alternating rounds\n",
		count, float64(size)/1e6, ours[0].Valid, rounds)
	report(ours[warmUp:], theirs[warmUp:])
	return nil
}

// report prints the manifests per second of both validators and their ratio.
func report(ours, theirs []round) {
	fmt.Printf("  %-30s %30s   %30s\n", "", "per second of CPU time", "per second on the wall")
	fmt.Printf("  %-30s %10s %10s %8s   %10s %10s %8s\n", "", "ambit", "ajv 8.20.0", "ratio", "ambit", "ajv 8.20.0", "ratio")
	for _, way := range []struct {
		name string
		of   func(*round) []cost
	}{
		{"from the file to the verdict", func(r *round) []cost { return r.Disk }},
		{"from bytes in memory", func(r *round) []cost { return r.Memory }},
	} {
		line := func(name string, pick func([]cost) cost) {
			pickOf := func(r *round) cost { return pick(way.of(r)) }
			fmt.Printf("  %-30s", name)
			for i, of := range []func(cost) int64{func(c cost) int64 { return c.CPU }, func(c cost) int64 { return c.Wall }} {
				x, y := perSecond(ours, pickOf, of), perSecond(theirs, pickOf, of)
				fmt.Printf("%*s%10.0f %10.0f %8.2f", 1+2*i, "", x, y, x/y)
			}
			fmt.Println()
		}
		line(way.name, sum)
		for i, d := range agent.Dialects {
			line("  "+string(d), func(c []cost) cost { return c[i] })
		}
	}
	last := ours[len(ours)-1]
	fmt.Printf("  ambit allocates %d times, %d bytes, for each manifest in memory\n", last.Allocs, last.Bytes)
}

func sum(costs []cost) (all cost) {
	for _, c := range costs {
		all.Files += c.Files
		all.Wall += c.Wall
		all.CPU += c.CPU
	}
	return all
}

// perSecond returns the number of manifests per second, as the median over the rounds.
func perSecond(rounds []round, pick func(*round) cost, time func(cost) int64) float64 {
	rates := make([]float64, len(rounds))
	for i := range rounds {
		c := pick(&rounds[i])
		rates[i] = float64(c.Files) / (float64(max(time(c), 1)) / 1e9)
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// side is a running validator. It measures one round for each line of input.
type side struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a validator. If taskset is installed, the validator runs on one CPU core.
func start(command string, args ...string) (*side, error) {
	if _, err := exec.LookPath("taskset"); err == nil {
		args = append([]string{"-c", "0", command}, args...)
		command = "taskset"
	}
	cmd := exec.Command(command, args...)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &side{cmd, in, bufio.NewReader(out)}, nil
}

func (s *side) turn() (r round, err error) {
	if _, err := io.WriteString(s.in, "go\n"); err != nil {
		return r, err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(line, &r)
}

// stop closes the validator's input, which makes the validator exit.
func (s *side) stop() error { return errors.Join(s.in.Close(), s.cmd.Wait()) }
