//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ambit-run/ambit/internal/cli"
)

const envAmbit = "AMBIT_TEST_BE_AMBIT"

// TestMain makes the test binary behave like the ambit binary if the variable envAmbit is set.
func TestMain(m *testing.M) {
	if os.Getenv(envAmbit) != "" {
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// TestJournal checks that every line of the chart has a value for each size. It runs only on Linux, because memory is
// not measured on other systems.
func TestJournal(t *testing.T) {
	t.Setenv(envAmbit, "1")
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector sleeps for a second at exit by default
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stub, err := newStub()
	if err != nil {
		t.Fatal(err)
	}
	defer stub.close()
	// This process allocates 512 MiB. If a measurement is that large, it is the memory of this process, not of ambit.
	ballast, err := syscall.Mmap(-1, 0, 512<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(ballast) }()
	c, err := growJournal(t.Context(), &setup{ambit: self, dir: filepath.Join(t.TempDir(), "journal"), stub: stub}, sizes{3200, 3300})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			names = append(names, l.Name)
			if len(l.Points) != 2 || l.Points[0][0] != 3200 || l.Points[1][0] != 3300 {
				t.Errorf("%s has the points %v, want points at 3200 and 3300", l.Name, l.Points)
			}
			for _, point := range l.Points {
				if point[1] <= 0 {
					t.Errorf("%s is %v at %v records, want more than 0", l.Name, point[1], point[0])
				}
				if strings.HasSuffix(l.Name, "resident") && point[1] >= 512 {
					t.Errorf("%s is %v MiB, which is the memory of this process and not of ambit", l.Name, point[1])
				}
			}
		}
	}
	for _, want := range []string{"daemon listening", "daemon's agent proven", "daemon, resident", "export, resident", "verify, resident"} {
		if !slices.Contains(names, want) {
			t.Errorf("the chart has no line %q: %q", want, names)
		}
	}
}

// TestConsole checks that every page of the console is measured.
func TestConsole(t *testing.T) {
	t.Setenv(envAmbit, "1")
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stub, err := newStub()
	if err != nil {
		t.Fatal(err)
	}
	defer stub.close()
	c, err := growConsole(t.Context(), &setup{ambit: self, dir: t.TempDir(), stub: stub}, sizes{300})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			if len(l.Points) != 1 || l.Points[0][1] <= 0 || p.Unit == "kB" && l.Points[0][1] > 50 {
				t.Errorf("the line %s has the points %v, want one positive value", l.Name, l.Points)
			}
		}
	}
}
