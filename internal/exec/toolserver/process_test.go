//go:build unix

package toolserver

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
)

// shell starts a shell script in the same way as a tool server.
func shell(t *testing.T, script string, change ...func(*program)) *process {
	t.Helper()
	s := program{argv: []string{"sh", "-c", script}, env: []string{"PATH=" + os.Getenv("PATH")}, log: func(string) {}}
	for _, f := range change {
		f(&s)
	}
	p, err := start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(); <-p.exited })
	return p
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read %q: %v", s, err)
	}
	return strings.TrimSpace(s)
}

// waitUnlocked waits until a process has released its file lock. The process has then ended; this works
// across pid namespaces.
func waitUnlocked(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	done := make(chan error, 1)
	go func() { done <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a process is still alive")
	}
}

// holder returns a script that starts a grandchild process. The grandchild holds a file lock until it
// ends. It is in another process group and ignores signals.
func holder(file string) string {
	return fmt.Sprintf(`setsid flock -x %s sh -c 'trap "" TERM HUP INT; echo held; while :; do sleep 1000; done' & wait`, file)
}

func TestOutputIsReadToTheEnd(t *testing.T) {
	p := shell(t, `head -c 60000 /dev/zero | tr '\0' x; echo; exit 3`)
	<-p.exited
	b, err := io.ReadAll(p.stdout)
	if err != nil || len(b) != 60001 {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
	if ee, ok := p.err.(*exec.ExitError); !ok || ee.ExitCode() != 3 {
		t.Errorf("the program ended with %v, want exit code 3", p.err)
	}
}

func TestStopEndsWhoIgnoresTheEndOfInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	p := shell(t, holder(file))
	if got := line(t, bufio.NewReader(p.stdout)); got != "held" {
		t.Fatalf("got %q", got)
	}
	p.stop(10 * time.Millisecond)
	waitUnlocked(t, file)
}

func TestKillEndsTheWholeTree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	p := shell(t, holder(file))
	line(t, bufio.NewReader(p.stdout))
	p.kill()
	<-p.exited
	waitUnlocked(t, file)
}

// TestTreeEndsWithItsParent checks that a program and its children end if the program's parent is killed. The test runs
// its own binary as the parent.
func TestTreeEndsWithItsParent(t *testing.T) {
	if file := os.Getenv("TOOLSERVER_TEST_HOLD"); file != "" {
		p := shell(t, holder(file))
		fmt.Println(line(t, bufio.NewReader(p.stdout)))
		select {}
	}
	requireContainment(t)
	file := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0], "-test.run=^TestTreeEndsWithItsParent$")
	cmd.Env = append(os.Environ(), "TOOLSERVER_TEST_HOLD="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := line(t, bufio.NewReader(out)); got != "held" {
		t.Fatalf("got %q", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // Wait can fail only because the process was killed
	waitUnlocked(t, file)
}

// requireContainment fails the test on Linux if bubblewrap does not work, and skips it on other systems.
func requireContainment(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "linux" && !contained(t) {
		t.Fatal("bubblewrap is missing or cannot make a pid namespace: install the package bubblewrap")
	}
	if runtime.GOOS != "linux" {
		t.Skip("tool servers are contained on Linux only")
	}
}

func contained(t *testing.T) bool {
	t.Helper()
	p := shell(t, "true")
	return p.contained
}

func TestContained(t *testing.T) {
	requireContainment(t)
	home := t.TempDir()
	for name, content := range map[string]string{"secrets": "canary", "packages/tool.js": "code"} {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hidden := func(s *program) { s.hidden, s.visible = []string{home}, filepath.Join(home, "packages") }
	us := strconv.Itoa(os.Getpid())
	tests := []struct{ name, script, want string }{
		{"cannot see ambit's processes", "ls /proc | grep -c '^[0-9]*$' | awk '{print ($1 < 8) ? \"few\" : \"many\"}'", "few"},
		{"cannot signal ambit", "kill -0 " + us + " 2>/dev/null && tr '\\0' ' ' < /proc/" + us + "/cmdline | grep -c toolserver || echo none", "none"},
		{"cannot read ambit's memory", "grep -l toolserver /proc/*/maps 2>/dev/null | head -1 | wc -l", "0"},
		{"cannot read a hidden folder", "cat " + home + "/secrets 2>/dev/null || echo absent", "absent"},
		{"cannot write to a hidden folder", "echo x > " + home + "/forged 2>/dev/null && echo wrote || echo refused", "refused"},
		{"can read the visible folder", "cat " + home + "/packages/tool.js", "code"},
		{"cannot write to the visible folder", "echo x > " + home + "/packages/tool.js 2>/dev/null && echo wrote || echo refused", "refused"},
		{"has only the given environment", "env | grep -v -e '^PATH=' -e '^PWD=' -e '^_=' -e '^SHLVL=' -e '^OLDPWD=' | wc -l", "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := shell(t, tt.script, hidden)
			<-p.exited
			b, err := io.ReadAll(p.stdout)
			if got := strings.TrimSpace(string(b)); err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(home, "forged")); err == nil {
		t.Error("the program wrote to a hidden folder")
	}
}

func TestStderrFloodIsBounded(t *testing.T) {
	var mu sync.Mutex
	lines, bytes := 0, 0
	p := shell(t, `head -c 20000000 /dev/zero | tr '\0' y >&2; i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done`, func(s *program) {
		var limit logLimit
		s.log = func(line string) {
			limit.write(line, time.Time{}, func(s string) string { return s }, func(l string) {
				mu.Lock()
				defer mu.Unlock()
				lines++
				bytes += len(l)
			})
		}
	})
	<-p.exited
	<-p.drained
	mu.Lock()
	defer mu.Unlock()
	if bytes > 2*maxLogBytes || lines == 0 {
		t.Errorf("got %d lines and %d bytes of log, want at most %d bytes", lines, bytes, 2*maxLogBytes)
	}
}

func TestStartRefusesWhatIsNotThere(t *testing.T) {
	if _, err := start(program{argv: []string{"no-such-program-anywhere"}}); err == nil {
		t.Error("a program that does not exist was started")
	}
	if _, err := start(program{}); err == nil {
		t.Error("a program without a command was started")
	}
}

// Text after a NUL in a value would become options of bubblewrap and could unhide folders.
func TestVariableWithANUL(t *testing.T) {
	home := t.TempDir()
	s := program{argv: []string{"sh", "-c", "exit"}, env: []string{"X=a\x00--bind\x00" + home + "\x00" + home}, hidden: []string{home}, log: func(string) {}}
	if p, err := start(s); err == nil {
		p.kill()
		<-p.exited
		t.Error("the program was started")
	}
}

// If a server sends notifications that are too large, the log mentions the server once. Its smaller notifications are
// still delivered.
func TestLargeNotificationsAreReported(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"log"}, "-do", "large-notifications")
	m := r.proven()
	for range 3 {
		if _, refusal := r.call(m, "one", "log", `{}`); refusal != nil {
			t.Fatal(refusal)
		}
	}
	r.until("every small notification is logged", func() bool { return strings.Count(r.log(), "the disk is full") == 3 })
	if log := r.log(); strings.Count(log, "drops notifications larger than 256 KiB") != 1 || strings.Contains(log, "large large") {
		t.Errorf("the log is %.3000s", log)
	}
}

// One line cannot exceed the limit of the log. The limit is renewed after a day.
func TestLogLimit(t *testing.T) {
	r := newRig(t)
	hand := r.byHand()
	r.o.Output = r.o.Log // as in Start
	s := newServer("x", Spec{Server: agent.Server{Alias: "one"}}, r.o)
	s.secrets.add("TOKEN", canary)
	long := strings.Repeat("é "+canary+" ", maxLogBytes/20)
	for range 3 {
		s.logOutput(long)
	}
	log := r.log()
	if len(log) < maxLogBytes/2 || len(log) > maxLogBytes+1000 || strings.Contains(log, canary[:8]) || !utf8.ValidString(log) ||
		strings.Count(log, "the rest is not shown") != 1 {
		t.Errorf("the log has %d bytes: %.100s … %s", len(log), log, log[max(0, len(log)-200):])
	}
	hand.advance(24 * time.Hour)
	if s.logOutput("a new day"); !strings.Contains(r.log(), "a new day") {
		t.Error("the limit was not renewed")
	}
}

func TestRestartDoesNotRenewLogLimit(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"crash", "echo"}, "-do", "flood")
	m := r.proven()
	r.call(m, "one", "crash", `{}`)
	r.until("the server works again", func() bool { // on a busy machine, this takes longer than a call waits
		_, refusal := r.call(m, "one", "echo", `{}`)
		return refusal == nil
	})
	if size := len(r.log()); size < maxLogBytes/2 || size > maxLogBytes*3/2 {
		t.Errorf("after two starts, the log has %d bytes", size)
	}
}
