package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// startup bounds the time for a target's seeds and kept inputs.
	startup = 5 * time.Minute
	// grace is the time that Go's fuzzer gives a worker to finish. A healthy worker needs a tenth of a second.
	grace = 2 * time.Second
	// hang is longer than Go's fuzzer needs to detect an input that hangs.
	hang = 15 * time.Second
	// ending bounds the time from the interrupt to the exit.
	ending = 30 * time.Second
	// shown bounds the printed part of a failing input, and the kept part of a run's output.
	shown = 16 << 10
)

// A target is one fuzz target in the test binary of its package.
type target struct {
	pkg, name string
	binary    string
	dir       string // the package's folder
	cache     string // go test's folder of inputs that reach more code
	tmp       string
	each      time.Duration
}

func (t *target) String() string { return t.pkg + " " + t.name }

// killed lists the lines with which Go's fuzzer reports that a worker was killed from outside, as by the kernel when
// memory is short. Every other end of a worker is the target's fault.
var killed = []string{
	"fuzzing process terminated by unexpected signal; no crash will be recorded: signal: killed",
	"fuzzing process hung or terminated unexpectedly: signal: killed",
}

// A retry is a failure without an input. The target is tried again for this time.
type retry struct {
	each time.Duration
	err  error
	busy bool // a worker did not end in time
}

func (r *retry) Error() string { return r.err.Error() }

// run fuzzes for the target's time and returns the number of runs.
func (t *target) run(ctx context.Context) (int64, error) {
	runs, err := t.try(ctx, t.each)
	if r, ok := errors.AsType[*retry](err); ok && ctx.Err() == nil {
		fmt.Printf("fuzz: %s: %v\nfuzz: %s: no failing input found; retrying for %v\n", t, r, t, r.each)
		runs, err = t.try(ctx, r.each)
		// The second try was long enough to find an input that hangs, so the machine is busy.
		if r, ok := errors.AsType[*retry](err); ok && r.busy {
			fmt.Printf("fuzz: %s: %v, again; the machine is busy\n", t, r)
			err = nil
		}
	}
	if err != nil {
		err = fmt.Errorf("%w\nfuzz it alone:\n  go test %s -run '^$' -fuzz '^%s$' -fuzztime 1m", err, t.pkg, t.name)
	}
	return runs, err
}

func (t *target) try(ctx context.Context, each time.Duration) (runs int64, err error) {
	before, err := t.inputs()
	if err != nil {
		return 0, err
	}
	// Killed workers leave files behind; they are removed with this folder.
	if err := os.MkdirAll(t.tmp, 0o700); err != nil {
		return 0, err
	}
	defer os.RemoveAll(t.tmp)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch := &watch{clock: time.AfterFunc(startup, stop), each: each}
	defer watch.clock.Stop()
	// The run is interrupted before -fuzztime, which only bounds it if this process dies.
	cmd := exec.CommandContext(ctx, t.binary, "-test.run=^$", "-test.fuzz=^"+t.name+"$",
		"-test.fuzztime="+(startup+each+ending).String(), "-test.fuzzminimizetime=100x", "-test.fuzzcachedir="+t.cache)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+t.tmp)
	cmd.Stdout, cmd.Stderr = watch, watch
	var stopped time.Time
	cmd.Cancel = func() error {
		stopped = time.Now()
		return cmd.Process.Signal(os.Interrupt)
	}
	cmd.WaitDelay = ending
	failure := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, failure
	}
	dropped := !stopped.IsZero() && time.Since(stopped) >= grace

	after, err := t.inputs()
	if err != nil {
		return 0, err
	}
	found := slices.DeleteFunc(after, func(name string) bool { return slices.Contains(before, name) })
	switch {
	case len(found) > 0:
		return watch.runs, t.finding(found, watch.text())
	case !cmd.ProcessState.Success():
		err = fmt.Errorf("%w\n%s", failure, watch.text())
		if watch.contains(killed) {
			err = &retry{each: each, err: err}
		}
		return watch.runs, err
	case !watch.begun:
		return 0, fmt.Errorf("it never began:\n%s", watch.text())
	case dropped:
		err = fmt.Errorf("a worker was still busy with an input %v after the end", grace)
		return watch.runs, &retry{each: each + hang, err: err, busy: true}
	}
	return watch.runs, nil
}

func (t *target) corpus() string { return filepath.Join(t.dir, "testdata", "fuzz", t.name) }

// inputs returns the file names of the target's corpus.
func (t *target) inputs() (names []string, err error) {
	entries, err := os.ReadDir(t.corpus())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// finding returns an error with the content of the inputs that a run wrote: a CI log may be all that is left.
func (t *target) finding(names []string, text string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "found a failing input\n%s", text)
	for _, name := range names {
		file := filepath.Join(t.corpus(), name)
		input, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "the input is kept in %s; commit it with the fix:\n%s\n", file, cut(input))
		fmt.Fprintf(&b, "run it alone:\n  go test %s -run '^%s$/^%s$'\n", t.pkg, t.name, name)
	}
	return errors.New(strings.TrimSpace(b.String()))
}

func cut(text []byte) []byte {
	if len(text) <= shown {
		return text
	}
	return fmt.Appendf(slices.Clip(text[:shown]), "… and %d bytes more", len(text)-shown)
}

// A watch reads a run's output and starts the clock when the seeds have passed.
type watch struct {
	clock *time.Timer
	each  time.Duration

	mu    sync.Mutex
	line  []byte
	kept  []byte // all but progress lines
	begun bool
	runs  int64
}

var progress = regexp.MustCompile(`^fuzz: elapsed: .*?(?:execs: (\d+) .*)?$`)

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(w.line, p...)
	for {
		line, rest, ok := bytes.Cut(w.line, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		w.readLine(line)
		w.line = rest
	}
}

func (w *watch) readLine(line []byte) {
	m := progress.FindSubmatch(line)
	if m == nil {
		if len(w.kept) < shown {
			w.kept = append(append(w.kept, cut(line)...), '\n')
		}
		return
	}
	if n, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
		w.runs = n
	}
	if !w.begun && bytes.Contains(line, []byte(", now fuzzing with ")) {
		w.begun = true
		w.clock.Reset(w.each)
	}
}

func (w *watch) text() string { return string(w.kept) }

// contains reports whether one of the texts is a line of the output.
func (w *watch) contains(texts []string) bool {
	for line := range strings.Lines(w.text()) {
		if slices.Contains(texts, strings.TrimSpace(line)) {
			return true
		}
	}
	return false
}
