//go:build linux && prove

package faults

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/test/overlay"
)

// The test cannot set the system clock for only one process. It also cannot replace a shared library, because a Go
// program does not use one to read the time. So the test builds ambit with a changed standard library. In this library,
// time.Now adds an offset that it reads from a file. Everything else is unchanged.

// jumped is a source file that the test adds to package time. Its code must make no system calls, because
// timers call time.Now where system calls are not allowed. Therefore the code reads the offset through
// shared memory.
const jumped = `package time

import (
	"syscall"
	"unsafe"
)

var clock = func() *int64 {
	name, _ := syscall.Getenv("AMBIT_TEST_CLOCK")
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		return new(int64)
	}
	defer syscall.Close(fd)
	shared, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return new(int64)
	}
	return (*int64)(unsafe.Pointer(&shared[0]))
}()

func jumped() int64 {
	if clock == nil { // clock is not initialized yet
		return 0
	}
	return *clock
}
`

const day = 24 * 60 * 60

// clocked is a fixture whose ambit uses a clock that the test can set.
type clocked struct {
	*fixture
	clock string
}

// buildClocked builds an ambit binary whose clock can be set.
func buildClocked(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const readsClock = "sec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), readsClock) != 1 {
		t.Fatal("the source of time.Now has changed: adapt the replacement in this test")
	}
	list := overlay.Files(t, map[string]string{
		filepath.Join(source, "time.go"):   strings.Replace(string(text), readsClock, readsClock+"\tsec += jumped()\n", 1),
		filepath.Join(source, "jumped.go"): jumped,
	})
	ambit := filepath.Join(t.TempDir(), "ambit")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", ambit, "../../../cmd/ambit").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return ambit
}

func newClocked(t *testing.T, ambit, gate string) *clocked {
	t.Helper()
	c := &clocked{fixture: newFixture(t, gate, 0)}
	c.binary, c.clock = ambit, filepath.Join(c.dir, "clock")
	c.env = append(c.env, "AMBIT_TEST_CLOCK="+c.clock)
	c.set(0)
	return c
}

// set sets the clock to the true time plus a number of seconds.
func (c *clocked) set(seconds int) {
	c.t.Helper()
	f, err := os.OpenFile(c.clock, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(int64(seconds))))
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestClockJumps sets the clock a day forward or back, and then back to the true time.
func TestClockJumps(t *testing.T) {
	ambit := buildClocked(t)
	for name, jump := range map[string]int{"forward": day, "backward": -day} {
		t.Run(name+" under a call", func(t *testing.T) { testJumpUnderACall(t, newClocked(t, ambit, ""), jump) })
		t.Run(name+" and a key to a call", func(t *testing.T) { testJumpAndKey(t, newClocked(t, ambit, ""), jump) })
		t.Run(name+" and an approval", func(t *testing.T) { testJumpAndApproval(t, newClocked(t, ambit, "-"), jump) })
		t.Run(name+" and keys and grants", func(t *testing.T) { testJumpAndRights(t, newClocked(t, ambit, "-"), jump) })
		t.Run(name+" and a session", func(t *testing.T) { testJumpAndSession(t, newClocked(t, ambit, ""), 2*jump) })
		t.Run(name+" and the console", func(t *testing.T) { testJumpAndConsole(t, newClocked(t, ambit, "-"), jump) })
	}
	t.Run("a day's cap", func(t *testing.T) {
		c := newClocked(t, ambit, "-")
		agent := c.purse()
		for _, step := range []struct {
			at, code int
		}{{0, 0}, {0, 1}, {day, 0}, {day, 1}, {0, 1}, {-day, 1}, {2 * day, 0}} {
			c.set(step.at)
			stdout, stderr, code := c.ambit("call", agent, "spend", "--input", `{"amount": 60}`, "--json")
			if code != step.code || code == 1 && !strings.Contains(stdout, "amount_exceeded") {
				t.Errorf("%d s from now: got exit code %d, want %d: %s %s", step.at, code, step.code, stdout, stderr)
			}
		}
		c.whole()
	})
}

// testJumpUnderACall checks that a call in progress is answered. Another process must not treat the process
// of this call as dead.
func testJumpUnderACall(t *testing.T, c *clocked, jump int) {
	d := c.serve()
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	c.until("the call has its effect", func() bool { return c.done() == 1 })
	c.set(jump)
	// When another process starts, it takes over the calls of dead processes.
	if _, stderr, code := c.ambit("call", c.agent, "look"); code != 0 {
		t.Errorf("a call of another process failed: %s", stderr)
	}
	c.open()
	if o := <-got; o.err != nil || o.a.status != 200 {
		t.Errorf("the call returned %+v", o)
	}
	if list := c.decisions(); !slices.Equal(list, []string{"allow", "allow"}) || c.done() != 1 {
		t.Errorf("the journal has %v, with %d effects", list, c.done())
	}
	c.set(0)
	c.whole()
	c.recovers(d, 1)
}

// testJumpAndKey makes several calls with the same idempotency key: a first call, a call that waits for it,
// and later calls. Together, these calls must have one effect and one answer.
func testJumpAndKey(t *testing.T, c *clocked, jump int) {
	pay := func() error {
		stdout, stderr, code := c.ambit("call", c.agent, "pay", "--idempotency-key", "once")
		if code != 0 || !strings.Contains(stdout, "paid") {
			return fmt.Errorf("exit code %d: %s %s", code, stdout, stderr)
		}
		return nil
	}
	ended := make(chan error, 2)
	go func() { ended <- pay() }()
	c.until("the call has its effect", func() bool { return c.done() == 1 })
	c.set(jump)
	go func() { ended <- pay() }()
	c.open()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for _, at := range []int{jump, 0} {
		c.set(at)
		if err := pay(); err != nil {
			t.Errorf("%d s from now: %v", at, err)
		}
	}
	if n := c.done(); n != 1 {
		t.Errorf("calls with one idempotency key had %d effects, want 1", n)
	}
	c.whole()
}

// testJumpAndApproval checks that an approval request cannot be approved after it has expired according to the
// system clock. The waiting call uses the monotonic clock, so it keeps waiting. When the system clock is right
// again, the request can be approved, but only once.
func testJumpAndApproval(t *testing.T, c *clocked, jump int) {
	agent := c.purse()
	type end struct {
		stdout, stderr string
		code           int
	}
	ended := make(chan end, 1)
	go func() {
		stdout, stderr, code := c.ambit("call", agent, "ask", "--json")
		ended <- end{stdout, stderr, code}
	}()
	c.until("the call waits for approval", func() bool { return len(c.waiting()) == 1 })
	id := c.waiting()[0]
	c.set(jump)
	_, stderr, code := c.ambit("approvals", "approve", id)
	if jump > 0 {
		if code == 0 || !strings.Contains(stderr, "the approval request has expired") {
			t.Errorf("approving the call a day later: got exit code %d: %s", code, stderr)
		}
		c.set(0)
		_, stderr, code = c.ambit("approvals", "approve", id)
	}
	if code != 0 {
		t.Fatalf("approving the call: got exit code %d: %s", code, stderr)
	}
	if e := <-ended; e.code != 0 {
		t.Errorf("the call exited with %+v", e)
	}
	if _, _, code := c.ambit("approvals", "approve", id); code == 0 {
		t.Error("the request was approved twice")
	}
	if n := count(c.decisions(), "allow"); n != 1 {
		t.Errorf("the journal has %d allowed calls, want 1", n)
	}
}

// testJumpAndRights checks keys and grants that are valid for an hour. They must have expired a day later, but
// not a day earlier.
func testJumpAndRights(t *testing.T, c *clocked, jump int) {
	d := c.serve()
	stdout, stderr, code := c.ambit("key", "new", "--all", "--expires", "1h", "--json")
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(stdout), &key); err != nil || code != 0 || key.Key == "" {
		t.Fatalf("ambit key new failed: %s %s", stdout, stderr)
	}
	if _, stderr, code := c.ambit("grant", "someone@local", "tool.bash", "--expires", "1h"); code != 0 {
		t.Fatal(stderr)
	}
	mine := *d
	mine.key = key.Key
	good := func() (keyed, granted bool) {
		a, err := mine.call("look")
		if err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := c.ambit("grants", "--json")
		var doc struct {
			Grants []struct{ Action string }
		}
		if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != 0 {
			t.Fatalf("ambit grants failed: %s %s", stdout, stderr)
		}
		return a.status == 200, len(doc.Grants) > 0
	}
	for _, at := range []int{0, jump, 0} {
		c.set(at)
		want := at <= 0
		if keyed, granted := good(); keyed != want || granted != want {
			t.Errorf("%d s from now: the key is valid: %v, the grant: %v", at, keyed, granted)
		}
	}
}
