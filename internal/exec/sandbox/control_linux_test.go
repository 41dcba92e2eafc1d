package sandbox

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// heard sends messages to r.listen, each with the given number of descriptors of one pipe. It fails if one of the
// descriptors is still open afterwards.
func heard(t *testing.T, r *running, texts []string, each int) {
	t.Helper()
	theirs, ours, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	r.control = ours
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.listen()
	}()
	var rights []byte
	if each > 0 {
		fds := make([]int, each)
		for i := range fds {
			fds[i] = int(write.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	for _, text := range texts {
		// EPIPE is expected after an empty message, because listen returns then.
		if err := unix.Sendmsg(int(theirs.Fd()), []byte(text), rights, nil, unix.MSG_NOSIGNAL); err != nil && !errors.Is(err, unix.EPIPE) {
			t.Fatal(err)
		}
	}
	if err := errors.Join(theirs.Close(), write.Close()); err != nil {
		t.Fatal(err)
	}
	<-done
	r.sockets.Close()                    // close the sockets as at the end of a run
	if err := ours.Close(); err != nil { // closing the socket also closes the descriptors of unread messages
		t.Fatal(err)
	}
	raw, err := read.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var readErr error
	if err := raw.Read(func(fd uintptr) bool {
		n, readErr = unix.Read(int(fd), make([]byte, 1))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if n != 0 || readErr != nil { // Read returns the end of file once all writers are closed
		t.Errorf("after %q with %d descriptors each, a descriptor is still open: %v", texts, each, readErr)
	}
}

// listening returns a sandbox that can only receive messages.
func listening() *running {
	return &running{ready: make(chan struct{}), restricted: make(chan struct{}), stop: make(chan struct{})}
}

// ambit closes the descriptors in a message that it does not use, so a program cannot exhaust ambit's limit on open
// files.
func TestDescriptorsOfMessages(t *testing.T) {
	for _, text := range []string{
		"", "x", `{}`, `{"kind":"` + shim.Sockets + `"}`, `{"kind":"` + shim.Notify + `"}`, `{"kind":"` + shim.Ready + `"}`, `{"kind":"` + shim.Restricted + `"}`, `{"kind":"` + shim.CanaryReport + `"}`,
		`{"kind":"` + shim.Failed + `"}`, `{"kind":"` + shim.NotStarted + `"}`, `{"kind":"` + shim.Dial + `"}`,
	} {
		for each := range 4 {
			heard(t, listening(), []string{text, text}, each)
		}
	}
	began := listening()
	close(began.ready)
	heard(t, began, []string{`{"kind":"` + shim.Sockets + `"}`}, 2)
	heard(t, began, []string{`{"kind":"` + shim.Notify + `"}`}, 1)
}

// TestUnsupervised checks that the program does not start if ambit did not receive the descriptor for the reported
// system calls. The kernel drops a descriptor if ambit has too many open files.
func TestUnsupervised(t *testing.T) {
	notify, restricted := `{"kind":"`+shim.Notify+`"}`, `{"kind":"`+shim.Restricted+`"}`
	for _, tt := range []struct {
		name       string
		supervised bool
		messages   []string
		each       int
		starts     bool
	}{
		{"no reports", false, []string{restricted}, 0, true},
		{"descriptor received", true, []string{notify, restricted}, 1, true},
		{"descriptor dropped", true, []string{notify, restricted}, 0, false},
		{"too many descriptors", true, []string{notify, restricted}, 9, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := listening()
			r.supervised = tt.supervised
			heard(t, r, tt.messages, tt.each)
			if closed(r.restricted) != tt.starts || closed(r.stop) == tt.starts || (r.failed == nil) != tt.starts {
				t.Errorf("the program starts: %v; the run ends: %v; failure: %v", closed(r.restricted), closed(r.stop), r.failed)
			}
		})
	}
}

// TestOwnListener checks that a program cannot install a listener of its own for the system calls that are reported to
// ambit.
func TestOwnListener(t *testing.T) {
	needConfined(t)
	stdout, _ := confined(t, Spec{Argv: python(`
import ctypes, errno, platform
class Filter(ctypes.Structure):
    _fields_ = [('code', ctypes.c_uint16), ('jt', ctypes.c_uint8), ('jf', ctypes.c_uint8), ('k', ctypes.c_uint32)]
class Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_uint16), ('filter', ctypes.POINTER(Filter))]
libc = ctypes.CDLL(None, use_errno=True)
seccomp = 317 if platform.machine() == 'x86_64' else 277
for flags in (8, 0):  # with and without a listener
    allow = Program(1, ctypes.pointer(Filter(6, 0, 0, 0x7fff0000)))
    result = libc.syscall(seccomp, 1, flags, ctypes.byref(allow))
    print(errno.errorcode[ctypes.get_errno()] if result < 0 else result)
`)})
	if stdout != "EPERM\n0" {
		t.Errorf("got %q, want EPERM with a listener and 0 without", stdout)
	}
}

// FuzzListen checks arbitrary messages on the control socket, because a program can send anything. The method listen
// must not panic or leave a descriptor open.
func FuzzListen(f *testing.F) {
	for _, kind := range []string{shim.Sockets, shim.Notify, shim.Ready, shim.Restricted, shim.CanaryReport, shim.Failed, shim.NotStarted, shim.Dial} {
		f.Add(`{"kind":"`+kind+`"}`, `{"kind":"`+kind+`","what":"x","text":"y"}`, uint8(1))
	}
	f.Add("", "x", uint8(2))
	f.Add(`{"kind":1}`, `[[[`, uint8(3))
	f.Fuzz(func(t *testing.T, first, second string, each uint8) {
		if len(first)+len(second) > 100_000 { // more bytes than fit in the socket's buffer
			return
		}
		heard(t, listening(), []string{first, second}, int(each%4))
	})
}
