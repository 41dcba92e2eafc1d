package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

func TestForkBomb(t *testing.T) {
	word := "bomb" + strconv.Itoa(os.Getpid())
	out, _ := attempt(t, Spec{Argv: append(python(`
import os
while True:
    try: os.fork()
    except OSError: pass
`), word), PIDs: 40, Wall: time.Second})
	if !out.TimedOut {
		t.Errorf("the run of the fork bomb did not time out: %+v", out)
	}
	if n := holding(word); n != 0 {
		t.Errorf("%d processes are still running", n)
	}
}

func TestProcessesAreBounded(t *testing.T) {
	n, err := strconv.Atoi(do(t, Spec{Argv: python(`
import os, signal
n = 1
try:
    while n < 500:
        if os.fork() == 0: signal.pause()
        n += 1
except BlockingIOError: pass
print(n, flush=True)
os._exit(0)
`), PIDs: 20}))
	if err != nil || n > 20 || n < 10 {
		t.Errorf("the program started %d processes, want 10 to 20 (error %v)", n, err)
	}
}

func TestMemoryHog(t *testing.T) {
	out, _ := attempt(t, Spec{Argv: python("b = bytearray(300 << 20); print('held')"), MemoryMB: 64})
	most := int64(64 << 20)
	if strong {
		most += sentryMemory
	}
	if !out.OOM || strings.Contains(string(out.Stdout), "held") || out.ExitCode == 0 || out.MaxRSS > most {
		t.Errorf("the program was not killed at the memory limit: %+v", out)
	}
	// With enough memory, the same program runs.
	if got := do(t, Spec{Argv: python("b = bytearray(300 << 20); print('held')")}); got != "held" {
		t.Errorf("with enough memory: got stdout %q, want held", got)
	}
}

// TestDiskFill fills all writable folders, which are on one disk.
func TestDiskFill(t *testing.T) {
	got := do(t, Spec{DiskMB: 16, Argv: python(`
import os
total, failed = 0, set()
for d in (os.environ['HOME'], '/tmp', '/dev/shm'):
    for i in range(64):
        try:
            with open(f'{d}/f{i}', 'wb', buffering=0) as f: total += f.write(b'x' * (1 << 20))
        except OSError as e:
            failed.add(e.strerror)
            break
print(total >> 20, *failed)
`)})
	if f := strings.SplitN(got, " ", 2); len(f) != 2 || f[1] != "No space left on device" || f[0] != "15" && f[0] != "16" {
		t.Errorf("the program wrote %q (MiB and error), want 15 or 16 and a full disk", got)
	}
}

func TestNothingElseIsWritable(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "main.py"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(folder, 0o777), os.Chmod(filepath.Dir(folder), 0o755)); err != nil {
		t.Fatal(err)
	}
	s := native("")
	s.Mounts = append(s.Mounts, Mount{Source: folder, To: "/agent"})
	adjust := " '/proc/self/oom_score_adj'"
	if strong {
		adjust = "" // this file belongs to gVisor's kernel
	}
	s.Argv = python(`
import os
# own is on the program's disk; everybody may open nodes.
own, nodes = ('/scratch', '/tmp', '/dev/shm'), ('/dev/null', '/dev/zero', '/dev/full', '/dev/random', '/dev/urandom', '/dev/tty', '/dev/pts', '/dev/ptmx')
mounts = {l.split()[1] for l in open('/proc/mounts')} | {'/', '/etc', '/usr/bin', '/usr/local', '/agent', '/dev', '/proc', '/sys', '/run', '/var', '/var/tmp', '/home', '/root', '/mnt'}
for m in sorted(mounts):
    for p in ((m + '/ambit-new'), m):
        if p.startswith(own) or p in nodes: continue
        try:
            with open(p, 'ab') as f: print('opened', p)
        except OSError: pass
    try:
        os.chmod(m, 0o777); m.startswith(own) or print('chmod', m)
    except OSError: pass
for p in ('/agent/main.py', '/probe', '/usr/bin/python3', '/proc/self/exe', '/proc/1/exe', '/proc/sys/kernel/hostname',` + adjust + `):
    for how in ('r+b', 'wb'):
        try: open(p, how); print('opened', p)
        except OSError: pass
    for f in (os.unlink, lambda p: os.rename(p, p + 'x'), lambda p: os.link(p, '/scratch/home/l')):
        try: f(p); print('changed', p)
        except OSError: pass
print('done')
`)
	if got := do(t, s); got != "done" {
		t.Errorf("the program changed files: %s", got)
	}
}

func TestInodeFlood(t *testing.T) {
	out, _ := attempt(t, Spec{MemoryMB: 48, Wall: 40 * time.Second, CPU: 2, Argv: python(`
import os
i = 0
while True:
    try: os.close(os.open(f'/tmp/{i}', os.O_CREAT | os.O_WRONLY))
    except OSError: break
    i += 1
`)})
	if out.TimedOut || !out.OOM && out.ExitCode != 0 {
		t.Errorf("the flood of files was not stopped: %+v", out)
	}
}

func TestCPUIsBounded(t *testing.T) {
	got := do(t, Spec{CPU: 0.25, Argv: python(`
import os, time
begun = time.monotonic()
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        while time.monotonic() < begun + 1.2: pass
        os._exit(0)
    pids.append(pid)
for p in pids: os.waitpid(p, 0)
t = os.times()
print((t.children_user + t.children_system) / (time.monotonic() - begun))
`)})
	most := 0.45
	if strong {
		most = 0.9 // gVisor measures with its own clock; the share would be 2 without a limit
	}
	if share, err := strconv.ParseFloat(got, 64); err != nil || share > most {
		t.Errorf("the program used %s of a core", got)
	}
}

func TestDeadline(t *testing.T) {
	// Without a deadline, the program would exit normally.
	out, _ := attempt(t, Spec{Argv: []string{"sleep", "20"}, Wall: 300 * time.Millisecond})
	if !out.TimedOut {
		t.Errorf("the run did not time out: %+v", out)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	_, err := execute(ctx, Spec{Argv: []string{"sh", "-c", "echo up >&2; sleep 600"}, OnStderr: func(string) { cancel(why) }})
	if !errors.Is(err, why) {
		t.Errorf("the canceled run returned error %v, want %v", err, why)
	}
	nothingLeft(t)
}

func TestDaemonsEnd(t *testing.T) {
	for _, ends := range []bool{true, false} {
		word := fmt.Sprintf("daemon%t%d", ends, os.Getpid())
		s := Spec{Argv: append(python(stubborn), word), Wall: 500 * time.Millisecond}
		if ends {
			s.Argv, s.Wall = append(python(strings.Replace(stubborn, "time.sleep(600)", "os.getpid() == main and os.wait() and os._exit(0)", 1)+"\ntime.sleep(600)"), word), time.Minute
		}
		out, _ := attempt(t, s)
		if out.TimedOut == ends {
			t.Errorf("with a program that exits: %t, the run ended with %+v", ends, out)
		}
		if n := holding(word); n != 0 {
			t.Errorf("with a program that exits: %t, %d processes are still running", ends, n)
		}
	}
}

func TestSupervisorKilled(t *testing.T) {
	able(t)
	word := "orphan" + strconv.Itoa(os.Getpid())
	cmd := exec.Command(probe())
	cmd.Env = []string{"PROBE=supervise", "WORD=" + word, "PATH=" + os.Getenv("PATH"), "PROBE_HOW=" + os.Getenv("PROBE_HOW")}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "up\n" || members(cmd.Process.Pid) < 3 || !strong && holding(word) < 2 {
		t.Errorf("got line %q, error %v and %d processes, want at least 3", line, err, members(cmd.Process.Pid))
	}
	orphaned(t, cmd)
	if n := holding(word); n != 0 {
		t.Errorf("%d processes are still running", n)
	}
}

// orphaned kills a supervisor and waits until all its processes have ended.
func orphaned(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Process.Kill()
	cmd.Wait()
	pid := cmd.Process.Pid
	for deadline := time.Now().Add(time.Minute); members(pid) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes are still running", members(pid))
		}
	}
	for deadline := time.Now().Add(time.Minute); len(groupsOf(pid)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("cgroups were left behind: %v", groupsOf(pid))
		}
	}
}

// TestWatcherKilled checks that the programs of a killed ambit process end even without the watcher process. The next
// ambit process removes the cgroups of these programs.
func TestWatcherKilled(t *testing.T) {
	able(t)
	cmd := exec.Command(probe())
	cmd.Env = []string{"PROBE=keep", "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("got line %q with error %v, want up", line, err)
	}
	pid, watchers := cmd.Process.Pid, 0
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		stat, _ := os.ReadFile(f)
		words, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if fields := strings.Fields(string(stat)); len(fields) > 3 && fields[3] == strconv.Itoa(pid) && strings.Contains(string(words), shim.Watcher) {
			watcher, _ := strconv.Atoi(fields[0])
			syscall.Kill(watcher, syscall.SIGKILL)
			watchers++
		}
	}
	if watchers != 1 {
		t.Errorf("found %d watchers, want 1", watchers)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for deadline := time.Now().Add(time.Minute); members(pid) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes are still running", members(pid))
		}
	}
	if len(groupsOf(pid)) == 0 {
		t.Error("the killed ambit process left no cgroups to remove, so the test cannot check the removal")
	}
	next := exec.CommandContext(t.Context(), probe())
	next.Env = []string{"GORACE=atexit_sleep_ms=0", "PROBE=deprived", "WITHOUT=nothing", "PATH=" + os.Getenv("PATH")}
	next.Stderr = os.Stderr
	if err := next.Run(); err != nil || len(groupsOf(pid)) > 0 {
		t.Errorf("cgroups were left behind: %v (error %v)", groupsOf(pid), err)
	}
}

// TestKilledWhileMaking kills an ambit process at random moments while it makes sandboxes. With its
// watcher, no process is left. Without the watcher, bubblewrap may be left, but no program.
func TestKilledWhileMaking(t *testing.T) {
	able(t)
	for i := range 10 {
		word := fmt.Sprintf("making%d-%d", os.Getpid(), i)
		watched := i < 5
		cmd := exec.Command(probe())
		cmd.Env = []string{"PROBE=make", "WORD=" + word, "PATH=" + os.Getenv("PATH"), "PROBE_HOW=" + os.Getenv("PROBE_HOW"), "GORACE=atexit_sleep_ms=0"}
		if !watched {
			cmd.Env = append(cmd.Env, "UNWATCHED=1")
		}
		cmd.Stderr = os.Stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "up\n" {
			t.Fatalf("got line %q with error %v, want up", line, err)
		}
		<-time.After(rand.N(40 * time.Millisecond)) // any moment
		if watched {
			orphaned(t, cmd)
		} else {
			cmd.Process.Kill()
			cmd.Wait()
		}
		// A program may be about to start. So require that no program runs for some time.
		noneSince := time.Now()
		for deadline := noneSince.Add(time.Minute); time.Since(noneSince) < 300*time.Millisecond; time.Sleep(5 * time.Millisecond) {
			if holding(word) == 0 {
				continue
			}
			if noneSince = time.Now(); noneSince.After(deadline) {
				t.Errorf("watched %t: %d programs are still running", watched, holding(word))
				break
			}
		}
		provenMachine().groups.sweep()
	}
}

// probeMake acts as an ambit process that makes one sandbox after another.
func probeMake() {
	ctx := context.Background()
	if os.Getenv("UNWATCHED") != "" {
		proven.watched = os.Stdin
	}
	if err := Check(ctx, tier(), ""); err != nil {
		fmt.Println(err)
	}
	fmt.Println("up")
	for {
		for range 2 {
			go Run(ctx, Spec{Tier: tier(), Argv: []string{"sh", "-c", "sleep 600; :", os.Getenv("WORD")}})
		}
		Run(ctx, Spec{Tier: tier(), Argv: []string{"true"}})
	}
}

// groupsOf returns the cgroups of a process's runs. members returns the number of processes in
// those cgroups.
func groupsOf(pid int) (all []string) {
	for _, parent := range provenMachine().groups.folders() {
		some, _ := filepath.Glob(filepath.Join(parent, fmt.Sprintf("ambit.*.%d.*", pid)))
		all = append(all, some...)
	}
	return all
}

func members(pid int) int {
	pids := map[string]bool{}
	for _, dir := range groupsOf(pid) {
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, p := range strings.Fields(string(text)) {
			pids[p] = true
		}
	}
	return len(pids)
}

// TestSecretsStayUnseen puts secrets where a child process could find them. A program that
// reads everything it can must not find them.
func TestSecretsStayUnseen(t *testing.T) {
	const secret = "canary-7c1f0e55"
	t.Setenv("AMBIT_TEST_SECRET", secret)
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	// Without the sandbox, every child would inherit this descriptor.
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	leak, err := dup(f)
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	sys, first := " '/sys',", "'/proc/1/environ', '/proc/1/mem', '/proc/1/fd/0'"
	if strong {
		sys, first = "", "" // /sys belongs to gVisor, and process 1 is the program itself
	}
	got := do(t, Spec{Stdin: []byte("in"), Argv: python(`
import os
word, seen = 'canary-7c1f' + '0e55', 0
for top in ('/etc', '/proc', '/scratch', '/dev', '/run', '/home', '/root', '/var', '/tmp', '/sys', '/mnt', '/opt', '/srv', '/oldroot', '/newroot'):
    for d, _, files in os.walk(top):
        if d.startswith('/proc/sys') or '/task/' in d: continue
        for n in files:
            p = d + '/' + n
            if not os.path.isfile(p): continue
            try:
                with open(p, 'rb') as f: text = f.read(1 << 20)
            except OSError: continue
            seen += 1
            if word.encode() in text and not p.endswith('/cmdline'): print('found in', p)
print('fds', *sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)))
for p in ('/etc/shadow', '/root', '/home', '/run', '/var', '/boot',` + sys + ` os.path.dirname(` + strconv.Quote(file) + `)):
    if os.path.exists(p): print('there is', p)
for n in (` + first + `):
    try: open(n).read(1); print('read', n)
    except OSError: pass
print('read' if seen > 20 else seen, sorted(os.environ))
`)})
	if want := "fds 0 1 2\nread ['HOME', 'LANG', 'PATH', 'TMPDIR', 'USER']"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestSyscalls(t *testing.T) {
	if strong {
		t.Skip("gVisor's kernel handles the system calls")
	}
	want := map[string]string{"socketpair": "ok", "tcp": "ok", "clone3": "ENOSYS", "newer": "ENOSYS", "x32": "ENOSYS"}
	lines := strings.Split(do(t, native("syscalls")), "\n")
	for _, line := range lines {
		at := strings.LastIndexByte(line, ' ')
		name, errno := line[:at], line[at+1:]
		if expected, ok := want[name]; ok && errno != expected || !ok && errno != "EPERM" {
			t.Errorf("system call with the wrong result: %s", line)
		}
	}
	if len(lines) < 28 {
		t.Errorf("only %d system calls were tried, want at least 28", len(lines))
	}
}

func TestNoWayOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	outside := []string{"169.254.169.254:80", "10.0.0.1:80", "172.17.0.1:80", "192.168.1.1:80", "1.1.1.1:443", "[2606:4700:4700::1111]:443"}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			outside = append(outside, net.JoinHostPort(ip.IP.String(), port))
		}
	}
	s := native("network")
	s.Env = append(s.Env, "ADDRESSES="+strings.Join(append(outside, l.Addr().String()), " "))
	lines := strings.Split(do(t, s), "\n")
	if len(lines) != len(outside)+1 {
		t.Fatal(lines)
	}
	for _, line := range lines[:len(outside)] {
		if !strings.HasSuffix(line, " ENETUNREACH false") && !strings.HasSuffix(line, " EADDRNOTAVAIL false") {
			t.Errorf("the network outside is reachable: %s", line)
		}
	}
	// The program has its own loopback.
	if line := lines[len(outside)]; !strings.HasSuffix(line, " ECONNREFUSED false") {
		t.Errorf("the loopback of this machine is reachable: %s", line)
	}
}

func TestFloods(t *testing.T) {
	for _, tt := range []struct {
		name, shell, where string
	}{
		{"stdout", "yes", "stdout"},
		{"a line without an end", "tr '\\0' x < /dev/zero", "stdout"},
		{"stderr", "yes >&2", "stderr"},
	} {
		out, _ := attempt(t, Spec{Argv: []string{"sh", "-c", tt.shell}, MaxStdout: 1 << 20, MaxStderr: 1 << 20, OnStderr: func(string) {}})
		if out.TooLarge != tt.where || len(out.Stdout) > 1<<20 || out.TimedOut {
			t.Errorf("%s: got TooLarge %q with %d bytes of stdout, want %q", tt.name, out.TooLarge, len(out.Stdout), tt.where)
		}
	}
	// A program may write exactly as much output as the limit allows, and the output may contain any bytes.
	out, _ := attempt(t, Spec{Argv: []string{"printf", "\\377\\376abc\\n"}, MaxStdout: 6})
	if out.TooLarge != "" || string(out.Stdout) != "\xff\xfeabc\n" {
		t.Errorf("output of exactly the limit: got %+v", out)
	}
}

// TestStdinNotRead checks a program that does not read its input. The run must not block or fail.
func TestStdinNotRead(t *testing.T) {
	if got := do(t, Spec{Argv: []string{"echo", "done"}, Stdin: make([]byte, 4<<20)}); got != "done" {
		t.Errorf("got stdout %q, want done", got)
	}
}

func TestExit(t *testing.T) {
	if out, _ := attempt(t, Spec{Argv: []string{"sh", "-c", "exit 7"}}); out.ExitCode != 7 || out.Signal != 0 {
		t.Errorf("got %+v, want exit code 7", out)
	}
	if out, _ := attempt(t, Spec{Argv: []string{"sh", "-c", "kill -SEGV $$"}}); out.Signal != 11 {
		t.Errorf("got %+v, want signal 11", out)
	}
	for _, argv := range [][]string{{"/no/such/program"}, {"/etc/hosts"}, nil} {
		if _, err := execute(t.Context(), Spec{Argv: argv}); !errors.Is(err, ErrNotStarted) {
			t.Errorf("%v: got error %v, want ErrNotStarted", argv, err)
		}
	}
	// The first environment is too large for the kernel. The second environment is too large for a
	// shim.Order.
	for _, size := range []int{4 << 20, 20 << 20} {
		if _, err := execute(t.Context(), Spec{Argv: []string{"true"}, Env: []string{"X=" + strings.Repeat("x", size)}}); !errors.Is(err, ErrNotStarted) {
			t.Errorf("with an environment of %d MiB: got error %v, want ErrNotStarted", size>>20, err)
		}
	}
	nothingLeft(t)
}
