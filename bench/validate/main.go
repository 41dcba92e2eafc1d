// Command validate measures how fast manifests are validated, beside ajv with
// compiled schemas on the same files in the same run, each on one core.
//
//	go run ./bench/validate
//
// It writes 10,000 manifests of all four dialects, nine in ten of them valid,
// into a folder of its own and lets the two take turns. ambit does more on
// each: it keeps places, looks for secrets and hidden characters, resolves
// references between fields and words every problem. Two things are timed for
// both: from the file to the verdict, and from bytes in memory to the verdict.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/manifest"
	"github.com/ambit-run/ambit/manifest/schema"
)

// result is what one side measured.
type result struct {
	Files  int     `json:"files"`
	Valid  int     `json:"valid"`
	Disk   []int64 `json:"disk"`
	Memory []int64 `json:"memory"`
	Allocs uint64  `json:"allocs"`
	Bytes  uint64  `json:"bytes"`
	Size   int64   `json:"size"`
}

func main() {
	count := flag.Int("n", 10_000, "how many manifests")
	turns := flag.Int("turns", 3, "how often each side takes its turn")
	measure := flag.String("measure", "", "only measure ambit on this folder")
	flag.Parse()
	var err error
	if *measure != "" {
		err = measureAmbit(*measure)
	} else {
		err = compare(*count, *turns)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const rounds = 5

func measureAmbit(folder string) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // as the command line does
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	type file struct {
		name string
		src  []byte
	}
	var files []file
	var r result
	for _, e := range entries {
		src, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		files = append(files, file{filepath.Join(folder, e.Name()), src})
		r.Size += int64(len(src))
	}
	r.Files = len(files)
	fromDisk := func() (valid int) {
		for _, f := range files {
			if _, err := manifest.Load(f.name, manifest.Options{}); err == nil {
				valid++
			}
		}
		return valid
	}
	fromMemory := func() (valid int) {
		for _, f := range files {
			if manifest.Parse(f.name, f.src, manifest.Options{}).Valid() {
				valid++
			}
		}
		return valid
	}
	fromDisk()
	var before, after runtime.MemStats
	for range rounds {
		start := time.Now()
		r.Valid = fromDisk()
		r.Disk = append(r.Disk, time.Since(start).Nanoseconds())
		runtime.ReadMemStats(&before)
		start = time.Now()
		fromMemory()
		r.Memory = append(r.Memory, time.Since(start).Nanoseconds())
		runtime.ReadMemStats(&after)
		r.Allocs = (after.Mallocs - before.Mallocs) / uint64(r.Files)
		r.Bytes = (after.TotalAlloc - before.TotalAlloc) / uint64(r.Files)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func compare(count, turns int) error {
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
	if err := generate(files, count); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var ambit, ajv result
	for range turns {
		if err := take(&ambit, self, "-measure", files); err != nil {
			return err
		}
		if err := take(&ajv, "node", "bench/validate/ajv.mjs", files, schemas, strconv.Itoa(rounds)); err != nil {
			return err
		}
	}
	if ambit.Valid != ajv.Valid {
		return fmt.Errorf("they disagree: ambit finds %d of %d valid, ajv %d", ambit.Valid, ambit.Files, ajv.Valid)
	}
	fmt.Printf("validate %d manifests (%.1f MB, %d valid), one core each, median of %d rounds, manifests/s\n", ambit.Files, float64(ambit.Size)/1e6, ambit.Valid, rounds*turns)
	fmt.Printf("  %-28s %10s %10s %8s\n", "", "ambit", "ajv 8.20.0", "ratio")
	row := func(what string, a, b []int64) {
		x, y := perSecond(ambit.Files, a), perSecond(ajv.Files, b)
		fmt.Printf("  %-28s %10.0f %10.0f %8.2f\n", what, x, y, x/y)
	}
	row("from the file to the verdict", ambit.Disk, ajv.Disk)
	row("from bytes in memory", ambit.Memory, ajv.Memory)
	fmt.Printf("  ambit allocates %d times, %d bytes, for each manifest in memory\n", ambit.Allocs, ambit.Bytes)
	return nil
}

// take lets one side measure itself, on one core where that can be had.
func take(r *result, command string, args ...string) error {
	if _, err := exec.LookPath("taskset"); err == nil {
		args = append([]string{"-c", "0", command}, args...)
		command = "taskset"
	}
	cmd := exec.Command(command, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	var one result
	if err := json.Unmarshal(out, &one); err != nil {
		return err
	}
	one.Disk = append(one.Disk, r.Disk...)
	one.Memory = append(one.Memory, r.Memory...)
	*r = one
	return nil
}

func perSecond(files int, nanoseconds []int64) float64 {
	slices.Sort(nanoseconds)
	return float64(files) / (float64(nanoseconds[len(nanoseconds)/2]) / 1e9)
}
