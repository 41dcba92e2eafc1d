// Package fuzz tests scripts/fuzz.
package fuzz

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// run runs the script in a folder, with a go command that builds without coverage instrumentation: instrumenting
// takes minutes, and the fuzzer behaves the same without it.
func run(t *testing.T, dir string) (output string, ok bool) {
	t.Helper()
	script, err := filepath.Abs("../../scripts/fuzz")
	if err != nil {
		t.Fatal(err)
	}
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	plain := "#!/bin/sh\nif [ \"$3\" = -vet=off ]; then shift 5; set -- test -c -vet=off \"$@\"; fi\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(plain), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "FUZZTIME=1s", "PATH="+bin+":"+os.Getenv("PATH"), "GOFLAGS=", "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), err == nil
}

// only writes testdata/targets to a folder of a new module, and renames all targets except one.
func only(t *testing.T, dir, target string) {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS("testdata/targets")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "targets_test.go")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(source), "func Fuzz", "func other")
	text = strings.ReplaceAll(text, "func other"+strings.TrimPrefix(target, "Fuzz")+"(", "func "+target+"(")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTargets runs the script for each fuzz target. It copies testdata/targets to a new module, renames the other
// targets, and runs the script there.
func TestTargets(t *testing.T) {
	for _, c := range []struct {
		name string
		want string // a part of the output if the target must fail; empty if the target must not fail
		kept int    // the number of failing inputs that the fuzzer must save
	}{
		{name: "FuzzHolds"},
		{name: "FuzzBreaks", want: "broken by another input", kept: 1},
		{name: "FuzzSeedBreaks", want: "broken by its seed"},
		{name: "FuzzExpires"},
		{name: "FuzzKilledOnce"},
		{name: "FuzzKilledAlways", want: "signal: killed"},
		{name: "FuzzHangs", want: "hung or terminated unexpectedly", kept: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			only(t, dir, c.name)
			out, ok := run(t, dir)
			if ok != (c.want == "") || !strings.Contains(out, c.want) || !strings.Contains(out, "/targets "+c.name) {
				t.Errorf("the script succeeded: %v, want %v; want %q in the output:\n%s", ok, c.want == "", c.want, out)
			}
			if !ok && !strings.Contains(out, "-run '^$' -fuzz '^"+c.name+"$'") {
				t.Errorf("the output does not contain the command that fuzzes the target again:\n%s", out)
			}
			inputs, err := filepath.Glob(filepath.Join(dir, "testdata/fuzz", c.name, "*"))
			if err != nil || len(inputs) != c.kept {
				t.Fatalf("the fuzzer saved the inputs %v, %v; want %d inputs", inputs, err, c.kept)
			}
			for _, input := range inputs {
				text, _ := os.ReadFile(input)
				again := "-run '^" + c.name + "$/^" + filepath.Base(input) + "$'"
				for _, want := range []string{input, strings.TrimSpace(string(text)), again} {
					if !strings.Contains(out, want) {
						t.Errorf("the output does not contain %s:\n%s", want, out)
					}
				}
			}
		})
	}
}

// TestPackages checks that packages run at once without mixing their results: each failure is printed in one piece.
func TestPackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	only(t, dir, "FuzzHolds")
	for _, name := range []string{"a", "b", "c"} {
		only(t, filepath.Join(dir, name), "FuzzSeedBreaks")
		if err := os.Remove(filepath.Join(dir, name, "go.mod")); err != nil {
			t.Fatal(err)
		}
	}
	broken := filepath.Join(dir, "broken")
	only(t, broken, "FuzzHolds")
	err := errors.Join(
		os.Remove(filepath.Join(broken, "go.mod")),
		os.WriteFile(filepath.Join(broken, "broken_test.go"), []byte("package targets\n\nvar _ int = true\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	out, ok := run(t, dir)
	for _, want := range []string{"4 failed, of 4 targets", "/targets FuzzHolds: execs: ", "/targets/broken: it does not build"} {
		if ok || !strings.Contains(out, want) {
			t.Errorf("the script succeeded: %v, want false; want %q in the output:\n%s", ok, want, out)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		target := "fuzz: example.com/targets/" + name + " FuzzSeedBreaks: "
		_, report, _ := strings.Cut(out, target+"no failing input found")
		report, _, ok := strings.Cut(report, target+"fuzz it alone")
		if !ok || strings.Contains(report, "example.com/") {
			t.Errorf("the report of the package %s is not in one piece:\n%s", name, out)
		}
	}
}

func TestNothingToFuzz(t *testing.T) {
	if out, ok := run(t, "../release"); ok || !strings.Contains(out, "found no fuzz target") {
		t.Errorf("a run without fuzz targets: success is %v, want false and an error message:\n%s", ok, out)
	}
}
