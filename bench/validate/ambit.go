package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/bench/cpu"
	"github.com/ambit-run/ambit/manifest"
)

type file struct {
	name string
	src  []byte
}

// serveAmbit is the ambit process of the comparison. For each line on stdin, it validates the manifests in a folder
// once, and prints the measurements as a line of JSON.
func serveAmbit(folder string) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // the ambit binary uses the same value
	groups, err := readGroups(folder)
	if err != nil {
		return err
	}
	fromFile := func(f *file) bool {
		_, err := manifest.Load(f.name, manifest.Options{})
		return err == nil
	}
	fromMemory := func(f *file) bool {
		_, err := manifest.Parse(f.name, f.src, manifest.Options{})
		return err == nil
	}

	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r round
		r.Disk, r.Valid = measure(groups, fromFile)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.Memory, _ = measure(groups, fromMemory)
		runtime.ReadMemStats(&after)
		files := uint64(sum(r.Memory).Files)
		r.Allocs, r.Bytes = (after.Mallocs-before.Mallocs)/files, (after.TotalAlloc-before.TotalAlloc)/files
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// readGroups reads the files of a folder, grouped by dialect.
func readGroups(folder string) ([][]file, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	groups := make([][]file, len(agent.Dialects))
	for i, d := range agent.Dialects {
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), string(d)) {
				continue
			}
			name := filepath.Join(folder, e.Name())
			src, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			groups[i] = append(groups[i], file{name, src})
		}
	}
	return groups, nil
}

// measure validates all files. It returns the cost for each group, and the number of valid files.
func measure(groups [][]file, isValid func(*file) bool) (costs []cost, valid int) {
	for _, files := range groups {
		wall, used := time.Now(), cpu.Used()
		for i := range files {
			if isValid(&files[i]) {
				valid++
			}
		}
		costs = append(costs, cost{len(files), time.Since(wall).Nanoseconds(), (cpu.Used() - used).Nanoseconds()})
	}
	return costs, valid
}
