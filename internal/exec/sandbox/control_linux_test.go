package sandbox

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// heard sends messages to r.listen, each with a number of descriptors of the same pipe. It
// fails if one of the descriptors is still open afterwards.
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
	r.sockets.Close()                    // as the end of a run does
	if err := ours.Close(); err != nil { // also closes the descriptors of unread messages
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
	if n != 0 || readErr != nil { // end of file: all writers are closed
		t.Errorf("after %q with %d descriptors each, a descriptor is still open: %v", texts, each, readErr)
	}
}

// listening returns a sandbox that can only receive messages.
func listening() *running {
	return &running{ready: make(chan struct{}), restricted: make(chan struct{})}
}

// ambit closes the unused descriptors of messages. So a program cannot exhaust ambit's limit on
// open files.
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

// FuzzListen: a program can send anything on the control socket. The method listen must not panic
// or leave a descriptor open.
func FuzzListen(f *testing.F) {
	for _, kind := range []string{shim.Sockets, shim.Notify, shim.Ready, shim.Restricted, shim.CanaryReport, shim.Failed, shim.NotStarted, shim.Dial} {
		f.Add(`{"kind":"`+kind+`"}`, `{"kind":"`+kind+`","what":"x","text":"y"}`, uint8(1))
	}
	f.Add("", "x", uint8(2))
	f.Add(`{"kind":1}`, `[[[`, uint8(3))
	f.Fuzz(func(t *testing.T, first, second string, each uint8) {
		if len(first)+len(second) > 100_000 { // more than the socket's buffer holds
			return
		}
		heard(t, listening(), []string{first, second}, int(each%4))
	})
}
