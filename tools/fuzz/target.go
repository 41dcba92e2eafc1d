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
	// startup is how long a target's seeds and kept inputs may take.
	startup = 5 * time.Minute
	// grace is how long Go's fuzzer lets a worker finish before it kills it. A healthy
	// one needs a tenth of a second.
	grace = 2 * time.Second
	// hang is more than Go's fuzzer takes to call an input one that hangs.
	hang = 15 * time.Second
	// ending is how long all of it may take to end.
	ending = 30 * time.Second
	// shown bounds what is printed of a failing input, and kept of a run's output.
	shown = 16 << 10
)

// A target is one fuzz target in the test binary of its package.
type target struct {
	pkg, name string
	binary    string
	dir       string // of the package: testdata is there
	cache     string // of the inputs that reach more code, as go test keeps them
	tmp       string
	each      time.Duration
}

func (t *target) String() string { return t.pkg + " " + t.name }

// killed are the whole lines with which Go's fuzzer reports that a worker was killed
// from outside: the kernel does that where memory is short. Every other end of a worker
// is put down to the target.
var killed = []string{
	"fuzzing process terminated by unexpected signal; no crash will be recorded: signal: killed",
	"fuzzing process hung or terminated unexpectedly: signal: killed",
}

// An again is a failure that names no input. It is worth another try of this time.
type again struct {
	each time.Duration
	err  error
	busy bool // a worker did not end in time
}

func (a *again) Error() string { return a.err.Error() }

// run fuzzes for the target's time, and says how often the target was run.
func (t *target) run(ctx context.Context) (int64, error) {
	runs, err := t.try(ctx, t.each)
	if a, ok := errors.AsType[*again](err); ok && ctx.Err() == nil {
		fmt.Printf("fuzz: %s: %v\nfuzz: %s: no input is to blame so far; once more, for %v\n", t, a, t, a.each)
		runs, err = t.try(ctx, a.each)
		// An input that hangs would have been found by now: it is the machine.
		if a, ok := errors.AsType[*again](err); ok && a.busy {
			fmt.Printf("fuzz: %s: %v, again; the machine is busy\n", t, a)
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
	// What a killed worker leaves behind goes with this folder.
	if err := os.MkdirAll(t.tmp, 0o700); err != nil {
		return 0, err
	}
	defer os.RemoveAll(t.tmp)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch := &watch{clock: time.AfterFunc(startup, stop), each: each}
	defer watch.clock.Stop()
	// The -fuzztime is never reached. It is for a run that nobody is left to interrupt.
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
		if watch.says(killed) {
			err = &again{each: each, err: err}
		}
		return watch.runs, err
	case !watch.begun:
		return 0, fmt.Errorf("it never began:\n%s", watch.text())
	case dropped:
		return watch.runs, &again{each: each + hang, err: fmt.Errorf("a worker was still busy with an input %v after the end", grace), busy: true}
	}
	return watch.runs, nil
}

func (t *target) corpus() string { return filepath.Join(t.dir, "testdata", "fuzz", t.name) }

// inputs are the files of the target's corpus.
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

// finding shows the inputs that a run wrote, for whoever has only the output.
func (t *target) finding(names []string, text string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "an input breaks it\n%s", text)
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

// A watch reads what a run prints, and starts its time once the seeds have passed.
type watch struct {
	clock *time.Timer
	each  time.Duration

	mu    sync.Mutex
	line  []byte
	kept  []byte // without the lines of progress
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
		w.take(line)
		w.line = rest
	}
}

func (w *watch) take(line []byte) {
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

// says tells whether one of these is a line of the output.
func (w *watch) says(texts []string) bool {
	for line := range strings.Lines(w.text()) {
		if slices.Contains(texts, strings.TrimSpace(line)) {
			return true
		}
	}
	return false
}
