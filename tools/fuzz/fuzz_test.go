package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTarget builds the targets in testdata without coverage instrumentation, which takes minutes to build. The fuzzer
// behaves the same without it.
func TestTarget(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "targets.test")
	if _, err := output(t.Context(), "testdata/targets", "test", "-c", "-vet=off", "-o", binary, "."); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		want    string // in the error; no error if empty
		without string // not in the error
		kept    int    // number of inputs
	}{
		{name: "FuzzHolds"},
		{name: "FuzzBreaks", want: "broken by another input", kept: 1},
		{name: "FuzzSeedBreaks", want: "broken by its seed"},
		{name: "FuzzKilledOnce"},
		{name: "FuzzKilledAlways", want: killed[0], without: "is kept in"},
		{name: "FuzzHangs", want: "hung or terminated unexpectedly", kept: 1},
		{name: "FuzzMissing", want: "it never began"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			target := &target{
				pkg: "example.com/targets", name: c.name, binary: binary, dir: dir,
				cache: filepath.Join(dir, "cache"), tmp: filepath.Join(dir, "tmp"), each: 3 * time.Second,
			}
			runs, err := target.run(t.Context())
			switch {
			case c.want == "" && (err != nil || runs == 0):
				t.Errorf("%d runs, %v", runs, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v, want one with %q", err, c.want)
			case c.without != "" && strings.Contains(err.Error(), c.without):
				t.Errorf("the error is %v, want one without %q", err, c.without)
			case c.want != "" && !strings.Contains(err.Error(), "go test example.com/targets -run '^$' -fuzz '^"+c.name+"$'"):
				t.Errorf("the error does not contain the command that fuzzes it again:\n%v", err)
			}
			inputs, failure := target.inputs()
			if failure != nil || len(inputs) != c.kept {
				t.Fatalf("kept %v, %v; want %d", inputs, failure, c.kept)
			}
			for _, name := range inputs {
				file := filepath.Join(target.corpus(), name)
				text, _ := os.ReadFile(file)
				for _, want := range []string{file, strings.TrimSpace(string(text)), "-run '^" + c.name + "$/^" + name + "$'"} {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("the error does not contain %s:\n%v", want, err)
					}
				}
			}
			if _, err := os.Stat(target.tmp); err == nil {
				t.Error("the workers' temporary folder still exists")
			}
		})
	}
}

func TestList(t *testing.T) {
	t.Chdir("../..")
	packages, err := list(t.Context(), []string{"./tooluri", "./cmd/ambit"})
	if err != nil || len(packages) != 1 {
		t.Fatalf("%d packages with fuzz targets, %v; want one", len(packages), err)
	}
	if got := packages[0].targets; !slices.Equal(got, []string{"FuzzParse", "FuzzPin"}) {
		t.Errorf("tooluri has %v", got)
	}
}

func TestNothingToFuzz(t *testing.T) {
	t.Chdir("../..")
	if err := fuzz(t.Context(), time.Second, []string{"./cmd/ambit"}); err == nil || !strings.Contains(err.Error(), "found no fuzz target") {
		t.Errorf("a run without targets returns %v", err)
	}
}
