package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// describe writes a description of the machine, without host names and paths. Readers need the description to judge
// the results of the benchmarks.
func describe(w io.Writer) error {
	lines := [][2]string{
		{"measured", time.Now().UTC().Format(time.DateOnly)},
		{"processor", field("/proc/cpuinfo", "model name") + ", " + strconv.Itoa(runtime.NumCPU()) + " cores"},
		{"memory", memory()},
		{"system", runtime.GOOS + "/" + runtime.GOARCH + ", kernel " + kernel()},
		{"Go", runtime.Version()},
		{"load before the start", load()},
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-22s %s\n", l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}

const unknown = "unknown"

// field returns the value of a name in a file whose lines have the form "name : value".
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

func memory() string {
	kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	if err != nil {
		return unknown
	}
	return fmt.Sprintf("%.0f GiB", float64(kib)/(1<<20))
}

// kernel returns the kernel version without the suffix of the distribution.
func kernel() string {
	out, err := exec.Command("uname", "-r").Output()
	if err != nil {
		return unknown
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "-")
	return version
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	f := strings.Fields(string(text))
	one, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return unknown
	}
	if one > float64(runtime.NumCPU())/2 {
		return f[0] + ": the machine was busy, so trust ratios and growth, but not absolute times"
	}
	return f[0]
}
