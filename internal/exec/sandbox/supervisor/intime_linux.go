//go:build amd64 || arm64

package supervisor

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// connectInTime connects a program's socket within a time limit. A program can configure the socket so that it drops
// the peer's reply and the call never returns. A shutdown of the socket ends the call.
func connectInTime(ctx context.Context, limit time.Duration, socket int, connect func() error) error {
	return inTime(ctx, limit, connect, func() { unix.Shutdown(socket, unix.SHUT_RDWR) })
}

// closeTime is the time limit for closing a socket.
const closeTime = time.Second

// closeInTime closes ambit's copy of a program's socket in at most closeTime. If the program has set SO_LINGER and
// closed its own copy, the close would wait for the peer.
func closeInTime(socket int) {
	inTime(context.Background(), closeTime, func() error { return unix.Close(socket) }, func() {})
}

// inTime makes a system call on a file that the program shares. The program can make such a call block. When the time
// limit is over or ctx ends, inTime therefore calls the function unblock and interrupts the thread. It repeats both
// until the call returns.
func inTime(ctx context.Context, limit time.Duration, call func() error, unblock func()) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	returned, ended := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(ended)
		for { // repeat, because an interruption before the call begins has no effect
			unblock()
			// Go's runtime uses SIGURG itself and ignores a SIGURG that it did not send.
			unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
			select {
			case <-returned:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	err := call()
	close(returned)
	if !unwatch() {
		<-ended
		return unix.ETIMEDOUT
	}
	return err
}
