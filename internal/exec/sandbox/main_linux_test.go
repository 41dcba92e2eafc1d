package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Depending on the variable PROBE, the test binary also runs as a native program in the sandbox, as a supervisor that a
// test kills, or as a process that lacks a mechanism.
func TestMain(m *testing.M) {
	switch os.Getenv("PROBE") {
	case "":
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			if dir := probeDir; dir != "" {
				os.RemoveAll(dir)
			}
			os.Exit(code)
		}))
	case "syscalls":
		probeSyscalls()
	case "network":
		probeNetwork()
	case "clients":
		probeClients()
	case "supervise":
		probeSupervise()
	case "deprived":
		probeDeprived()
	case "keep":
		probeKeep()
	case "make":
		probeMake()
	case "temporary":
		probeTemporary()
	}
	os.Exit(0)
}

var probeDir string

// probe is a copy of the test binary that all users can reach.
var probe = sync.OnceValue(func() string {
	if path := os.Getenv("PROBE_FILE"); path != "" {
		return path
	}
	dir, err := os.MkdirTemp("", "ambit-probe")
	if err != nil {
		panic(err)
	}
	probeDir = dir
	content, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "probe"), content, 0o755))
	}
	if err != nil {
		panic(err)
	}
	return filepath.Join(dir, "probe")
})

// The same tests run in three ways: with a new sandbox for each run, with a pool, and in the strong
// tier.
var (
	pooled = os.Getenv("PROBE_HOW") == "pool"
	strong = os.Getenv("PROBE_HOW") == "strong"
)

func tier() Tier {
	if strong {
		return Strong
	}
	return Standard
}

// provenMachine returns the machine after its isolation was proven.
func provenMachine() *machine {
	if strong {
		return proven.machines[Strong]
	}
	return proven.machines[Standard]
}

// execute calls Run in the way that the variable PROBE_HOW selects.
func execute(ctx context.Context, s Spec) (Outcome, error) {
	s.Tier = tier()
	if pooled {
		s.Pool = NewPool(1, true)
		defer s.Pool.Close()
		if len(s.Argv) > 0 && s.Pool.accepts(&s) {
			if err := s.Pool.Prepare(ctx, s); err != nil {
				return Outcome{}, err
			}
			if len(s.Pool.spare) != 1 || !s.Pool.spare[0].isIdle() {
				return Outcome{}, errors.New("the pool has no idle sandbox")
			}
		}
	}
	return Run(ctx, s)
}

// able skips the test, or fails it in CI, if this machine cannot isolate programs.
func able(t *testing.T) {
	t.Helper()
	if err := Check(t.Context(), tier(), ""); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// do runs a program that is expected to exit with code 0.
func do(t *testing.T, s Spec) string {
	t.Helper()
	out, stderr := attempt(t, s)
	if out.ExitCode != 0 || out.TimedOut || out.TooLarge != "" {
		t.Fatalf("exit code %d, %+v: %s", out.ExitCode, out, stderr)
	}
	return strings.TrimSpace(string(out.Stdout))
}

// attempt runs a program and returns its outcome and stderr, whatever its exit code.
func attempt(t *testing.T, s Spec) (Outcome, string) {
	t.Helper()
	able(t)
	var stderr strings.Builder
	if s.OnStderr == nil {
		s.OnStderr = func(line string) {
			if stderr.Len() < 10_000 {
				stderr.WriteString(line + "\n")
			}
		}
	}
	out, err := execute(t.Context(), s)
	if err != nil {
		t.Fatalf("the run failed: %v; stderr: %s", err, stderr.String())
	}
	nothingLeft(t)
	return out, stderr.String()
}

// nothingLeft fails if a run's cgroup still exists. Only empty cgroups can be removed, so
// this also shows that no process is left.
func nothingLeft(t *testing.T) {
	t.Helper()
	prefix, err := groupPrefix(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range provenMachine().groups.folders() {
		if left, _ := filepath.Glob(filepath.Join(parent, prefix+"*")); len(left) > 0 {
			t.Errorf("cgroups were left behind: %v", left)
		}
	}
}

func python(code string) []string { return []string{"python3", "-I", "-c", code} }

func native(name string) Spec {
	return Spec{Argv: []string{"/probe"}, Env: []string{"PROBE=" + name, "GORACE=atexit_sleep_ms=0"}, Mounts: []Mount{{Source: probe(), To: "/probe"}}}
}

// holding counts the processes on this machine whose command line contains the given word.
func holding(word string) int {
	n := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), word) {
			n++
		}
	}
	return n
}

// probeSyscalls prints the kernel's answers to forbidden system calls.
func probeSyscalls() {
	raw := func(name string, number uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		fmt.Println(name, errName(errno))
	}
	socket := func(name string, family, kind, protocol int) {
		_, err := unix.Socket(family, kind, protocol)
		fmt.Println(name, errName(err))
	}
	raw("ptrace", unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1)
	raw("process_vm_readv", unix.SYS_PROCESS_VM_READV, 1)
	raw("pidfd_getfd", unix.SYS_PIDFD_GETFD, 0, 0)
	raw("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	raw("mount", unix.SYS_MOUNT)
	raw("setns", unix.SYS_SETNS, 0, 0)
	raw("bpf", unix.SYS_BPF)
	raw("io_uring", unix.SYS_IO_URING_SETUP, 1)
	raw("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT)
	raw("keyctl", unix.SYS_KEYCTL)
	raw("perf_event_open", unix.SYS_PERF_EVENT_OPEN)
	raw("userfaultfd", unix.SYS_USERFAULTFD)
	raw("chroot", unix.SYS_CHROOT)
	raw("clone new user", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))
	raw("clone new net", unix.SYS_CLONE, unix.CLONE_NEWNET|uintptr(unix.SIGCHLD))
	raw("clone3", unix.SYS_CLONE3)
	raw("newer", 5000)
	raw("x32", 0x40000000+39)
	raw("tiocsti", unix.SYS_IOCTL, 0, unix.TIOCSTI)
	socket("unix", unix.AF_UNIX, unix.SOCK_STREAM, 0)
	socket("netlink", unix.AF_NETLINK, unix.SOCK_RAW, 0)
	socket("packet", unix.AF_PACKET, unix.SOCK_RAW, 0)
	socket("vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	socket("alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
	socket("raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	socket("raw6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
	_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	fmt.Println("socketpair", errName(err))
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	fmt.Println("datagram pair", errName(err))
	socket("tcp", unix.AF_INET, unix.SOCK_STREAM, 0)
}

func errName(err error) string {
	errno, ok := err.(unix.Errno)
	if err == nil || ok && errno == 0 {
		return "ok"
	}
	if ok {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// probeNetwork prints the result of a connection to each address in ADDRESSES.
func probeNetwork() {
	for _, address := range strings.Fields(os.Getenv("ADDRESSES")) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
		}
		errno, _ := errors.AsType[unix.Errno](err)
		fmt.Println(address, errName(errno), err == nil)
	}
}

// probeSupervise acts as an ambit process with a run in progress; the test kills it.
func probeSupervise() {
	execute(context.Background(), Spec{
		Argv: append(python(stubborn), os.Getenv("WORD")), Wall: time.Minute,
		OnStderr: func(line string) { fmt.Println(line) },
	})
}

// stubborn is a Python program that ignores signals and has a child in another session.
const stubborn = `
import ctypes, os, signal, sys, time
main = os.getpid()
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    print('up', file=sys.stderr, flush=True)
time.sleep(600)
`

// verdictOf is the result that probeDeprived prints.
type verdictOf struct {
	Code    call.Code
	Missing []string
	Hint    string
	Ran     bool
}

// probeDeprived removes a mechanism, tries to run a program, and prints the result.
func probeDeprived() {
	deprive(os.Getenv("WITHOUT"))
	out, err := Run(context.Background(), Spec{Argv: []string{"sh", "-c", "echo ran"}, Wall: 20 * time.Second})
	v := verdictOf{Ran: strings.Contains(string(out.Stdout), "ran")}
	if u, ok := errors.AsType[*Unavailable](err); ok {
		v.Code, v.Hint, v.Missing = u.Code, u.Hint, []string{u.Missing.What}
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	json.NewEncoder(os.Stdout).Encode(v)
}

// TestWithoutRoot runs the tests again without root. The user gets delegated cgroups, as from
// a service manager.
func TestWithoutRoot(t *testing.T) {
	if again() {
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("the tests already run as an ordinary user")
	}
	able(t)
	ordinary(t, "", "TestHostile") // TestConfinedWithoutCgroups runs this test as an ordinary user
}

// TestThroughAPool runs the tests again in prepared sandboxes with prestarted
// interpreters.
func TestThroughAPool(t *testing.T) {
	if again() {
		return
	}
	able(t)
	cmd := exec.CommandContext(t.Context(), probe(), "-test.v", "-test.count=1", "-test.timeout=120s", "-test.skip=TestFailsClosed|TestCanariesNotice|Pool|Ahead|Watcher|KilledWhile")
	cmd.Env = append(os.Environ(), "PROBE_FILE="+probe(), "PROBE_HOW=pool")
	passes(t, cmd)
}

// again reports whether another run of these tests has started this process.
func again() bool { return os.Getenv("PROBE_FILE") != "" }

func ordinary(t *testing.T, how, skip string) {
	const user = 60123
	name := "ambit-test-" + strconv.Itoa(os.Getpid()) + how
	var join []string
	for _, parent := range proven.machines[Standard].groups.folders() {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// The watcher ends shortly after the process that it watches.
			err := os.Remove(dir)
			for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				err = os.Remove(dir)
			}
			if err != nil {
				t.Error(err)
			}
		})
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, f := range append(files, dir) {
			if err := os.Chown(f, user, user); err != nil {
				t.Fatal(err)
			}
		}
		join = append(join, filepath.Join(dir, "cgroup.procs"))
	}
	temp := t.TempDir()
	if err := errors.Join(os.Chown(temp, user, user), os.Chmod(filepath.Dir(temp), 0o755)); err != nil {
		t.Fatal(err)
	}
	script := `probe=$1; shift; for f; do echo $$ > "$f"; done; exec setpriv --reuid 60123 --regid 60123 --clear-groups "$probe" -test.v -test.count=1 -test.timeout=480s -test.skip="$SKIP"`
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh", probe()}, join...)...)
	cmd.Env = []string{
		"GORACE=atexit_sleep_ms=0", "PATH=/usr/bin:/bin:" + filepath.Dir(os.Getenv("PROBE_RUNSC")), "HOME=" + temp, "TMPDIR=" + temp,
		"PROBE_FILE=" + probe(), "PROBE_HOW=" + how, "SKIP=" + skip, "CI=" + os.Getenv("CI"),
	}
	if how == "" {
		text, err := json.Marshal(realServers(t))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, realServersVar+"="+string(text))
	}
	passes(t, cmd)
}

// TestConfinedWithoutCgroups runs the attacks on confined programs again, for an ordinary user without delegated
// cgroups. Most people run ambit this way.
func TestConfinedWithoutCgroups(t *testing.T) {
	if again() {
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("the tests already run as an ordinary user")
	}
	temp := t.TempDir()
	if err := errors.Join(os.Chown(temp, 60123, 60123), os.Chmod(filepath.Dir(temp), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "setpriv", "--reuid", "60123", "--regid", "60123", "--clear-groups", probe(),
		"-test.v", "-test.count=1", "-test.timeout=480s", "-test.run=^(TestHostile|TestEndsBySIGTERM|TestPrivateFolderIsBounded|TestNoOtherProgram)$")
	cmd.Env = []string{
		"GORACE=atexit_sleep_ms=0", "PATH=/usr/bin:/bin", "HOME=" + temp, "TMPDIR=" + temp, "PROBE_FILE=" + probe(), "CI=" + os.Getenv("CI"),
	}
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "--- PASS: TestHostile") {
		t.Errorf("%v\n%s", err, text)
	}
}

// passes runs the tests in another process. It fails if they fail or if none ran.
func passes(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "--- PASS: TestForkBomb") {
		t.Errorf("%v\n%s", err, text)
	}
	if testing.Verbose() {
		t.Logf("%s", text)
	}
}
