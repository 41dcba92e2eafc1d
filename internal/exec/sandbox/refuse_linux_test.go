package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestFailsClosed checks that runs are refused if a mechanism is missing. The test breaks each mechanism in two ways.
// Either the mechanism fails, or it reports success but does nothing ("silently"). Only canaries can detect the second
// way.
func TestFailsClosed(t *testing.T) {
	able(t)
	for _, tt := range []struct {
		without string
		missing string
		root    bool // only root can remove the mechanism
	}{
		{"bubblewrap", "bubblewrap", false},
		{"another program under the name of bubblewrap", "bubblewrap", false},
		{"a bubblewrap that only starts the program", "landlock", false},
		{"user namespaces", "user namespace", false},
		{"network namespace, silently", "network namespace", false},
		{"pid namespace, silently", "pid namespace", false},
		{"sizes, silently", "mounts", false},
		{"landlock", "landlock", false},
		{"landlock, silently", "landlock", false},
		{"seccomp", "seccomp", false},
		{"seccomp, silently", "seccomp", false},
		{"close_range", "close_range", false},
		{"close_range, silently", "close_range", false},
		{"rlimits", "rlimits", false},
		{"rlimits, silently", "rlimits", false},
		{"cgroups", "cgroup", true},
		{"open files", "sandbox", false},
		{"nothing", "", false},
	} {
		t.Run(tt.without, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				return // only root can remove the mechanism
			}
			cmd := exec.CommandContext(t.Context(), probe())
			cmd.Env = []string{"GORACE=atexit_sleep_ms=0", "PROBE=deprived", "WITHOUT=" + tt.without, "PATH=" + os.Getenv("PATH"), "SPACE=" + space(t)}
			cmd.Stderr = os.Stderr
			if tt.root {
				cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			}
			text, err := cmd.Output()
			var v verdictOf
			if err != nil || json.Unmarshal(text, &v) != nil {
				t.Fatalf("the process failed with %v and printed %s", err, text)
			}
			if tt.missing == "" {
				if !v.Ran {
					t.Errorf("the run was refused although no mechanism is missing: %+v", v)
				}
				return
			}
			if v.Ran || v.Code != call.IsolationUnavailable || v.Hint == "" || !slices.ContainsFunc(v.Missing, func(m string) bool { return strings.HasPrefix(m, tt.missing) }) {
				t.Errorf("the run returned %+v, want a refusal because %s is missing", v, tt.missing)
			}
		})
	}
}

// space returns a folder that all users can reach. It is not in /tmp, which staged mounts
// cover.
func space(t *testing.T) string {
	dir, err := os.MkdirTemp("/var/tmp", "ambit-test")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestCanariesNotice checks that the canaries report a missing limit or rule.
func TestCanariesNotice(t *testing.T) {
	able(t)
	for canary, s := range map[string]Spec{
		shim.CanaryForks:  {PIDs: 200},
		shim.CanaryMemory: {},
		shim.CanaryDisk:   {},
		shim.CanaryRules:  {Mounts: []Mount{{Source: "/etc/hostname", To: "/etc/shadow"}}},
	} {
		s.Argv = []string{canary}
		s.defaults()
		out, report, err := proven.machines[Standard].run(t.Context(), &s, canary)
		if err != nil || out.OOM || report == nil || report.Text == "" {
			t.Errorf("canary %s: got error %v and report %+v, want a report of a missing limit", canary, err, report)
		}
	}
}

// deprive removes a mechanism from this process and its children.
func deprive(what string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	silently := uint32(0)
	name, quiet := strings.CutSuffix(what, ", silently")
	if !quiet {
		silently = uint32(unix.EOPNOTSUPP)
	}
	space := os.Getenv("SPACE")
	switch name {
	case "bubblewrap":
		must(os.Setenv("PATH", space))
	case "another program under the name of bubblewrap":
		must(os.WriteFile(filepath.Join(space, "bwrap"), []byte("#!/bin/sh\necho ran\n"), 0o755))
		must(os.Setenv("PATH", space+":"+os.Getenv("PATH")))
	case "a bubblewrap that only starts the program":
		wrapped(space, `while [ "$1" != -- ]; do shift; done; shift; exec "$@"`, "--nothing")
	case "network namespace":
		wrapped(space, `exec "$real" --unshare-all --share-net "$@"`, "--unshare-all")
	case "pid namespace":
		wrapped(space, `exec "$real" --unshare-user --unshare-ipc --unshare-net --unshare-uts "$@"`, "--unshare-all")
	case "sizes":
		wrapped(space, `exec "$real" "$@"`, "--size")
	case "user namespaces":
		answer(unix.SYS_CLONE, 16, unix.CLONE_NEWUSER, uint32(unix.EPERM))
		answer(unix.SYS_UNSHARE, 16, unix.CLONE_NEWUSER, uint32(unix.EPERM))
	case "landlock":
		if quiet {
			answer(unix.SYS_LANDLOCK_RESTRICT_SELF, 0, 0, silently)
		} else {
			answer(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, silently)
		}
	case "seccomp":
		answer(unix.SYS_SECCOMP, 0, 0, silently)
	case "close_range":
		answer(unix.SYS_CLOSE_RANGE, 0, 0, silently)
	case "rlimits":
		answer(unix.SYS_PRLIMIT64, 32, ^uint32(0), silently) // affect only calls that set a new limit
	case "open files":
		// Enough files for the runtime, but not for the pipes of a run.
		must(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 16, Max: 16}))
	case "cgroups":
		// This process has its own mount namespace, so the mount affects no other process.
		must(unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, ""))
	}
}

// wrapped puts a script named bwrap first in PATH. The script removes an option from its arguments.
// For --size, it also removes the value. Then it executes a shell command.
func wrapped(space, command, option string) {
	real, err := exec.LookPath("bwrap")
	script := `#!/bin/bash
real=` + real + `
args=()
while [ $# -gt 0 ]; do
	case $1 in
	--size) [ "$1" = ` + option + ` ] && shift || args+=("$1") ;;
	` + option + `) ;;
	*) args+=("$1") ;;
	esac
	shift
done
set -- "${args[@]}"
` + command + "\n"
	if err := errors.Join(
		err, os.WriteFile(filepath.Join(space, "bwrap"), []byte(script), 0o755),
		os.Setenv("PATH", space+":"+os.Getenv("PATH")),
	); err != nil {
		panic(err)
	}
}

// answer makes a system call do nothing and return errno. An errno of 0 means success. If bits is
// not 0, answer affects only calls with one of these bits in the argument at the offset.
func answer(number uint32, offset, bits, errno uint32) {
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	}
	if bits != 0 {
		prog = append(
			prog, bpf.LoadAbsolute{Off: offset, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipTrue: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		)
	}
	raw, err := bpf.Assemble(append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | errno}))
	if err != nil {
		panic(err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	p := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	// The filter applies to all threads, because Go's runtime starts children from any thread.
	unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&p))); e != 0 {
		panic(e)
	}
}
