package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHierarchy parses the mounts of different machines.
func TestHierarchy(t *testing.T) {
	unified := t.TempDir()
	own := filepath.Join(unified, "user.slice", "a.scope")
	if err := errors.Join(os.MkdirAll(own, 0o755), os.WriteFile(filepath.Join(own, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, mounts, own string
		want              string
		unified           bool
	}{
		{"version 2", "30 24 0:26 / " + unified + " rw - cgroup2 cgroup2 rw\n", "0::/user.slice/a.scope\n", own + " " + own + " " + own, true},
		{"started by an ambit process in ambit.main", "30 24 0:26 / " + unified + " rw - cgroup2 cgroup2 rw\n", "0::/user.slice/a.scope/ambit.main\n", own + " " + own + " " + own, true},
		{
			"version 1",
			"1 2 0:1 / /c/memory rw - cgroup cgroup rw,memory\n1 2 0:2 / /c/pids rw shared:3 - cgroup cgroup rw,pids\n1 2 0:3 / /c/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
			"4:memory:/x/y\n3:pids:/\n2:cpu,cpuacct:/z\n", "/c/memory/x/y /c/pids /c/cpu,cpuacct/z", false,
		},
		{
			"only a part of the tree is mounted",
			"1 2 0:1 /docker/abc /c/memory rw - cgroup cgroup rw,memory\n1 2 0:2 /docker/abc /c/pids rw - cgroup cgroup rw,pids\n1 2 0:3 /docker/abc /c/cpu rw - cgroup cgroup rw,cpu\n",
			"4:memory:/docker/abc\n3:pids:/docker/abc/sub\n2:cpu:/docker/abc\n", "/c/memory /c/pids/sub /c/cpu", false,
		},
		{
			"memory in version 1, the rest in version 2",
			"1 2 0:1 / /c/memory rw - cgroup cgroup rw,memory\n30 24 0:26 / " + unified + " rw - cgroup2 cgroup2 rw\n",
			"4:memory:/\n0::/user.slice/a.scope\n", "/c/memory " + own + " " + own, false,
		},
		{"none", "", "", "", false},
		{"no memory", "1 2 0:2 / /c/pids rw - cgroup cgroup rw,pids\n1 2 0:3 / /c/cpu rw - cgroup cgroup rw,cpu\n", "3:pids:/\n2:cpu:/\n", "", false},
	} {
		h, err := findHierarchy(tt.mounts, tt.own)
		got := strings.Join([]string{h.parents["memory"], h.parents["pids"], h.parents["cpu"]}, " ")
		if tt.want == "" {
			if !errors.Is(err, errNoController) {
				t.Errorf("%s: got error %v, want %v", tt.name, err, errNoController)
			}
			continue
		}
		if err != nil || got != tt.want || h.unified != tt.unified {
			t.Errorf("%s: got %s with error %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

// TestCreateWithoutCgroupFiles checks that create fails in a folder without cgroup files, and leaves nothing behind.
func TestCreateWithoutCgroupFiles(t *testing.T) {
	dir := t.TempDir()
	h := hierarchy{parents: map[string]string{"memory": dir, "pids": dir, "cpu": dir}, unified: true}
	if _, err := h.create(bounds{memory: 1 << 20, pids: 10, cpu: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, os.ErrNotExist)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("folders were left behind: %v", left)
	}
}

func TestUsers(t *testing.T) {
	for uidMap, want := range map[string]int{
		"         0          0 4294967295\n":   0x70000000,
		"0 100000 65536\n":                     61184,
		"0 1000 1\n1 100000 65536\n":           61184,
		"0 1000 1\n":                           0,
		"":                                     0,
		"nonsense\n":                           0,
		"0 0 100\n1879048192 5000 268435456\n": 0x70000000,
		fmt.Sprintf("0 0 %d\n", uint64(0x70000000)+1<<28-1): 61184,
	} {
		s, err := findUsers(uidMap)
		if s.first != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %+v with error %v, want first id %d", uidMap, s, err, want)
		}
		if u := s.pick(); want != 0 && (u < s.first || u >= s.first+s.count) {
			t.Errorf("picked user %d, which is not in %+v", u, s)
		}
	}
}

// TestManyAtOnce checks that concurrent runs do not affect each other.
func TestManyAtOnce(t *testing.T) {
	able(t)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			for j := range 8 {
				word := fmt.Sprintf("%d-%d", i, j)
				out, err := execute(t.Context(), Spec{Argv: []string{"sh", "-c", "cat; ls ~; touch ~/" + word}, Stdin: []byte(word)})
				if err != nil || string(out.Stdout) != word {
					t.Errorf("got stdout %q with error %v, want %q", out.Stdout, err, word)
				}
			}
		})
	}
	wg.Wait()
	nothingLeft(t)
}

// TestSecondVersion starts a run in a version 2 cgroup on a machine that has both versions.
// The kernel must start the process in that cgroup, and kill it through cgroup.kill. Limits
// are not checked, because the controllers are in version 1. On a machine that has only
// version 2, all other tests cover this.
func TestSecondVersion(t *testing.T) {
	able(t)
	if strong || provenMachine().groups.unified || os.Geteuid() != 0 {
		return // an ordinary user cannot write to other cgroups
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	parent := ""
	for line := range strings.Lines(string(mounts)) {
		if left, right, _ := strings.Cut(line, " - "); strings.HasPrefix(right, "cgroup2 ") {
			f := strings.Fields(left)
			parent = groupDir(f[4], f[3], ownPaths(string(own))[""])
		}
	}
	if parent == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("cgroup version 2 is not mounted")
		}
		t.Skip("cgroup version 2 is not mounted")
	}
	m := *provenMachine()
	m.groups = hierarchy{parents: map[string]string{"memory": parent, "pids": parent, "cpu": parent}, unified: true}
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	g := &group{m.groups, prefix + "second"}
	if err := os.Mkdir(g.dir("memory"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A thread cannot join a version 2 cgroup by itself, because the folder has no tasks file.
	if err := errors.Join(g.join(), g.leave()); err != nil {
		t.Error(err)
	}
	up := make(chan struct{})
	s := Spec{Argv: append(python(stubborn), "second"), OnStderr: func(string) { close(up) }, Wall: time.Minute}
	s.defaults()
	r := &running{shape: shapeOf(&s), group: g, stop: make(chan struct{}), restricted: make(chan struct{}), ready: make(chan struct{}), exited: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	if err := r.start(&m); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() {
		<-up
		text, _ := os.ReadFile(filepath.Join(g.dir("memory"), "cgroup.procs"))
		if n := len(strings.Fields(string(text))); n < 4 {
			t.Errorf("the cgroup contains %d processes, want at least 4", n)
		}
		cancel(why)
	}()
	if _, _, err := r.execute(ctx, &s, order(&s, ""), time.Now()); !errors.Is(err, why) {
		t.Error(err)
	}
	if _, err := os.Stat(g.dir("memory")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup was left behind: %v", err)
	}
}

// TestBoundsOfTheSecondVersion checks that each limit is written to its file.
func TestBoundsOfTheSecondVersion(t *testing.T) {
	dir := t.TempDir()
	g := &group{hierarchy{parents: map[string]string{"memory": dir, "pids": dir, "cpu": dir}, unified: true}, "."}
	files := []string{"cgroup.controllers", "memory.max", "memory.oom.group", "memory.swap.max", "pids.max", "cpu.max"}
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.bound(bounds{memory: 64 << 20, pids: 20, cpu: 0.5}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range files[1:] {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(text))
	}
	if want := "67108864|1|0|20|50000 100000"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	// Every file is required, except memory.swap.max, which needs swap accounting.
	for _, name := range files[1:] {
		if name == "memory.swap.max" {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := g.bound(bounds{memory: 64 << 20, pids: 20, cpu: 0.5}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without %s: got error %v, want %v", name, err, os.ErrNotExist)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
