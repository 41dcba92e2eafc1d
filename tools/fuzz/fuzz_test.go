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
			if err := os.CopyFS(dir, os.DirFS("testdata/targets")); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "targets_test.go")
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			only := strings.ReplaceAll(string(source), "func Fuzz", "func other")
			only = strings.ReplaceAll(only, "func other"+strings.TrimPrefix(c.name, "Fuzz")+"(", "func "+c.name+"(")
			if err := os.WriteFile(file, []byte(only), 0o600); err != nil {
				t.Fatal(err)
			}
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

func TestNothingToFuzz(t *testing.T) {
	if out, ok := run(t, "../release"); ok || !strings.Contains(out, "found no fuzz target") {
		t.Errorf("a run without fuzz targets: success is %v, want false and an error message:\n%s", ok, out)
	}
}
