// Command bench compares the speed of ambit's guard with the speed of gitleaks on texts without secrets, because
// nearly all real texts contain no secrets. It also measures the guard on other kinds of text, and on the slowest
// texts that it can find.
//
// The command measures CPU time, which other work on the machine hardly affects. Each number is the best of several
// rounds.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/build"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/bench/cpu"
	"github.com/ambit-run/ambit/internal/gateway/guard"
)

func main() {
	rounds := flag.Int("rounds", 7, "number of rounds, of which the best counts; with 0, only search for slow texts")
	prose := flag.String("prose", "../..", "the `folder` of the project, whose documentation is used as prose")
	budget := flag.Duration("time", 150*time.Millisecond, "CPU time to spend on a round")
	inputs := flag.Int("inputs", 20_000, "number of texts to generate in the search for slow texts")
	seed := flag.Uint64("seed", 1, "the seed for the search; equal seeds generate nearly the same texts")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	var err error
	if *rounds > 0 {
		err = run(*prose, *rounds, *budget)
	}
	if err == nil {
		err = worst(*prose, *seed, *inputs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(prose string, rounds int, budget time.Duration) error {
	peer, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return err
	}
	output, err := guard.NewOutput(guard.OutputRules{})
	if err != nil {
		return err
	}
	input, err := guard.NewInput(guard.InputRules{
		PII: agent.PIICategories,
		Deny: []string{
			`ignore\s+(?:all\s+)?(?:previous|prior)\s+instructions`, `(?:reveal|show|print)\s+(?:me\s+)?(?:your|the)\s+system\s+prompt`,
			`you\s+are\s+now\s+\w+\s+without\s+restrictions`, `<\|im_start\|>`, `do\s+not\s+tell\s+the\s+user`,
		},
	})
	if err != nil {
		return err
	}
	kinds, err := texts(prose)
	if err != nil {
		return err
	}
	for kind, text := range kinds {
		kinds[kind] = clean(text, input)
	}
	fmt.Println("guard: clean text, MB/s of CPU time on one core, best of", rounds)
	fmt.Printf("%-8s %9s %12s %12s %8s %12s %14s %12s\n", "text", "bytes", "secret scan", "gitleaks", "times", "result", "allocs/scan", "input chain")
	for _, kind := range []string{"prose", "json", "source"} {
		for _, size := range []int{1_000, 100_000, 5_000_000} {
			text := fill(kinds[kind], size)
			if n := len(guard.Scan(text)); n > 0 {
				return fmt.Errorf("the %s text of %d bytes is not clean: %d findings", kind, size, n)
			}
			result := jsontext.Value(`{"content":[{"type":"text","text":` + quote(text) + `}]}`)
			arguments := jsontext.Value(`{"text":` + quote(text) + `}`)
			if kind == "json" {
				arguments = jsontext.Value("[" + strings.TrimSuffix(string(text[:bytes.LastIndex(text, []byte("},"))+1]), ",") + "]")
				if size == 1_000 {
					result = jsontext.Value(`{"structuredContent":` + string(arguments) + `}`)
				}
			}
			if _, findings, refusal := input.Check(context.Background(), arguments); refusal != nil || len(findings) > 0 {
				return fmt.Errorf("the %s text of %d bytes is not clean: %v %v", kind, size, findings, refusal)
			}
			ours, allocs := measure(rounds, budget, len(text), func() { guard.Scan(text) })
			// gitleaks takes seconds for a large text, so run it only once.
			tries := 2
			if size > 1_000_000 {
				tries = 1
			}
			theirs, _ := measure(min(rounds, tries), budget, len(text), func() { peer.DetectBytes(text) })
			whole, _ := measure(rounds, budget, len(result), func() { output.Check(result) })
			chain, _ := measure(rounds, budget, len(arguments), func() { input.Check(context.Background(), arguments) })
			fmt.Printf("%-8s %9d %12.0f %12.2f %7.0fx %12.0f %14.1f %12.0f\n", kind, size, ours, theirs, ours/theirs, whole, allocs, chain)
		}
	}
	return others(kinds["source"], rounds, budget)
}

// others measures the guard on kinds of text for which gitleaks takes too long. One of them is a log with a secret in
// every line.
func others(source []byte, rounds int, budget time.Duration) error {
	r := rand.New(rand.NewPCG(1, 1))
	chars := func(n int, alphabet string) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = alphabet[r.IntN(len(alphabet))]
		}
		return out
	}
	const base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var log bytes.Buffer
	for i := range 4_000 {
		fmt.Fprintf(&log, "2026-03-01T10:%02d:%02d.%03dZ INFO request id=%d path=/v1/orders/%d status=200 authorization=\"Bearer %s\" ms=%d\n",
			i/60%60, i%60, i%1000, i, i*7, chars(1_500, base64), i%90)
	}
	for _, text := range []struct {
		kind string
		text []byte
	}{
		{"minified", minify(source)}, {"base64", chars(1_000_000, base64)}, {"log", log.Bytes()},
	} {
		for _, size := range []int{1_000, 100_000, 5_000_000} {
			text, kind := fill(text.text, size), text.kind
			speed, allocs := measure(rounds, budget, len(text), func() { guard.Scan(text) })
			fmt.Printf("%-8s %9d %12.0f %12s %8s %12s %14.1f\n", kind, size, speed, "", "", "", allocs)
		}
	}
	return nil
}

// minify removes comments, line breaks, and the blanks beside signs, as the tools that minify JavaScript do.
func minify(source []byte) []byte {
	source = regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAll(source, nil)
	source = bytes.Join(bytes.Fields(source), []byte(" "))
	return regexp.MustCompile(` ?([-+*/%=<>&|!?:;,.(){}\[\]]) ?`).ReplaceAll(source, []byte("$1"))
}

// clean removes the lines in which the guard finds secrets or personal data, such as an email address in a comment.
func clean(text []byte, input *guard.Input) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		_, findings, refusal := input.Check(context.Background(), jsontext.Value(quote(bytes.ToValidUTF8(line, nil))))
		if refusal == nil && len(findings) == 0 && len(guard.Scan(line)) == 0 {
			out = append(out, line...)
		}
	}
	return out
}

// measure returns the best throughput of several rounds in MB/s, and the allocations per call.
func measure(rounds int, budget time.Duration, size int, do func()) (speed, allocs float64) {
	if rounds > 1 {
		do() // initialize everything that is loaded on first use
	}
	for range rounds {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start, n := cpu.Used(), 0
		var used time.Duration
		for used < budget {
			do()
			n++
			used = cpu.Used() - start
		}
		runtime.ReadMemStats(&after)
		if s := float64(size) * float64(n) / used.Seconds() / 1e6; s > speed {
			speed, allocs = s, float64(after.Mallocs-before.Mallocs)/float64(n)
		}
	}
	return speed, allocs
}

func quote(text []byte) string {
	b, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		panic(err) // the scan fails only for invalid UTF-8, and the texts are valid
	}
	return string(b)
}

// fill repeats the text up to the given size in bytes.
func fill(text []byte, size int) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		b.Write(text)
	}
	return bytes.ToValidUTF8(b.Bytes()[:size], nil)
}

// texts returns texts of three kinds: prose from ambit's documentation, generated JSON records, and source code from
// Go's standard library.
func texts(project string) (map[string][]byte, error) {
	prose, err := collect(project, 2, func(name string) bool {
		// Skip personal-data.md, because it contains many examples of findings.
		return strings.HasSuffix(name, ".md") && filepath.Base(filepath.Dir(name)) != "docs" &&
			filepath.Base(name) != "personal-data.md"
	})
	if err != nil {
		return nil, err
	}
	source, err := collect(filepath.Join(build.Default.GOROOT, "src", "net", "http"), 0, func(name string) bool {
		return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
	})
	if err != nil {
		return nil, err
	}
	if len(prose) == 0 || len(source) == 0 {
		return nil, fmt.Errorf("found no texts: set -prose to the top folder of the project")
	}
	var records bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&records, `{"id":%d,"user_id":"u_%x","name":"Customer %d","created_at":"2026-03-%02dT10:%02d:00Z","status":"active","tags":["alpha","beta"],"cache_key":"user:%d","url":"https://shop.example.com/v1/users/%d","score":%d.%d,"note":"prefers the %s, since %d"},`+"\n",
			i, i*7919, i, i%28+1, i%60, i, i, i%100, i%10, []string{"morning", "afternoon", "evening"}[i%3], 1990+i%30)
	}
	return map[string][]byte{"prose": prose, "json": records.Bytes(), "source": source}, nil
}

// collect returns the contents of the files in a folder. The callback take reports whether to include a file with the
// given name. collect visits subfolders up to the given depth.
func collect(folder string, depth int, take func(name string) bool) ([]byte, error) {
	var all []byte
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			below, _ := filepath.Rel(folder, path)
			if d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != folder || below != "." && strings.Count(below, string(filepath.Separator)) >= depth {
				return filepath.SkipDir
			}
			return nil
		}
		if take(path) {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all = append(all, text...)
		}
		return nil
	})
	return all, err
}
