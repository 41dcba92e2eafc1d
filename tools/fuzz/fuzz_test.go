package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The targets in testdata are built as a user's would be, without the instruments
// that take minutes to build; the fuzzer does the same without them.
func TestTarget(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "targets.test")
	if _, err := output(t.Context(), "testdata/targets", "test", "-c", "-vet=off", "-o", binary, "."); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		says   string // in its error; it has none if this is empty
		silent string // not in its error
		kept   int    // inputs
	}{
		{name: "FuzzHolds"},
		{name: "FuzzBreaks", says: "broken by another input", kept: 1},
		{name: "FuzzSeedBreaks", says: "broken by its seed"},
		{name: "FuzzKilledOnce"},
		{name: "FuzzKilledAlways", says: killed[0], silent: "is kept in"},
		{name: "FuzzHangs", says: "hung or terminated unexpectedly", kept: 1},
		{name: "FuzzNobody", says: "it never began"},
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
			case c.says == "" && (err != nil || runs == 0):
				t.Errorf("%d runs, %v", runs, err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("the error is %v, want one that says %q", err, c.says)
			case c.silent != "" && strings.Contains(err.Error(), c.silent):
				t.Errorf("the error is %v, which says %q", err, c.silent)
			case c.says != "" && !strings.Contains(err.Error(), "go test example.com/targets -run '^$' -fuzz '^"+c.name+"$'"):
				t.Errorf("the error does not say how to fuzz it again:\n%v", err)
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
						t.Errorf("the error does not say %s:\n%v", want, err)
					}
				}
			}
			if _, err := os.Stat(target.tmp); err == nil {
				t.Error("the folder for what workers leave behind is still there")
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
		t.Errorf("a run of nothing ends with %v", err)
	}
}
