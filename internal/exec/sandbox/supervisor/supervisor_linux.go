//go:build amd64 || arm64

// Package supervisor answers the system calls that a sandbox reports: connect, execve and uses of files.
//
// The program runs in a network namespace that contains only a loopback interface. A seccomp filter reports each
// connect call to ambit and makes the calling thread wait. The supervisor asks an [egress.Network] whether the
// program may reach the host. If so, ambit dials the host, and connects the program's own socket to a relay inside
// the namespace. The relay copies the data between the program's socket and ambit's connection. No socket of the
// machine's network enters the namespace.
//
// ambit makes each connection with its own copy of the program's socket, so a program gains nothing by changing the
// arguments of its call. If the supervisor wrongly connects the program's own TCP or UDP socket, the empty namespace
// still keeps the connection inside the sandbox. For Unix sockets with a path, only the supervisor's check protects the
// machine.
//
// A program learns addresses from a resolver in the namespace. The resolver invents an address for every name and
// never asks another server. A lookup therefore sends no data out of the sandbox, and the policy checks the name in the
// program's query, not an address that a name server chose.
//
// Programs need no proxy settings, so clients of any protocol over TCP work. Clients of UDP protocols other than DNS
// do not work.
//
// A program that may start any program can communicate with the programs that it starts over Unix sockets. A socket
// with an abstract name belongs to the namespace. A socket with a path must be in a folder to which only this sandbox
// writes, because other folders may contain the sockets of programs outside, such as a container engine.
//
// If other programs are forbidden, the filter also reports execve. The first execve starts the program itself. Every
// later execve fails with EACCES, unless the owner listed the program. Landlock then checks a listed program again:
// the sandbox can execute only the listed files.
package supervisor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// Sockets are the files that a shim opened inside a sandbox. [Supervisor.Open] takes them over.
type Sockets struct {
	// Notify receives the reported system calls.
	Notify *os.File
	// DNS is a UDP socket at port 53, and Relay is a TCP listener. Both are nil for a program without network access.
	DNS, Relay *os.File
}

// Close closes the files. Close is needed only if the files were not passed to Open.
func (s *Sockets) Close() {
	for _, f := range []*os.File{s.Notify, s.DNS, s.Relay} {
		f.Close()
	}
}

// Supervisor answers the reported system calls of one sandbox.
type Supervisor struct {
	// Network is nil for a program that may not connect to any host.
	Network *egress.Network
	// NoExec refuses every execve except the first one and the execve of a path in Programs. Programs lists files and
	// folders. A program can change the path after the supervisor has read it, so Landlock must also forbid all other
	// programs.
	NoExec   bool
	Programs []string
	// OnExec receives the path of each refused execve. It may be nil. Several goroutines may call it at the same time.
	// The program can change the path while ambit reads it, so the path is only for display and not for decisions.
	OnExec func(path string)

	// Private contains the numbers of the mounts in which the program may connect to Unix sockets.
	Private []uint64

	// Files contains the files that the program can write and replace, by their paths in the sandbox.
	Files map[string]File

	// Moving is a lock. While it is locked, calls that rename a file or give it a second name wait.
	Moving *sync.RWMutex

	// Observe receives each reported use of a file. If Observe is nil, the filter reports only calls that rename a file or
	// give it a second name. Call found to check whether the file exists in the sandbox, but not after Observe returns.
	Observe func(use agent.Right, found func() bool)

	socks     Sockets
	notify    *notifier
	dns       net.PacketConn // nil without network access
	relay     *relay         // nil without network access
	root      *os.File       // the root folder of the sandbox
	started   atomic.Bool
	replacing sync.Mutex
	names     names
}

// maxCalls is the maximum number of system calls that are answered at the same time. Threads with further calls wait
// in the kernel.
const maxCalls = 64

// Open takes over the files in socks and prepares [Supervisor.Serve]. If Open fails, the program must not start,
// because its system calls would not be answered.
func (s *Supervisor) Open(socks Sockets) (err error) {
	s.socks = socks
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.notify, err = newNotifier(socks.Notify); err != nil || socks.Relay == nil {
		return err
	}
	if s.relay, err = newRelay(socks.Relay); err != nil {
		return err
	}
	s.dns, err = net.FilePacketConn(socks.DNS)
	return err
}

func (s *Supervisor) close() {
	if s.dns != nil {
		s.dns.Close()
	}
	if s.relay != nil {
		s.relay.listener.Close()
	}
	if s.notify != nil {
		unix.Close(s.notify.stop)
	}
	s.root.Close()
	s.socks.Close()
}

// Serve answers system calls until the sandbox or ctx ends. An error means that Serve can no longer answer the calls,
// although the sandbox has not ended.
func (s *Supervisor) Serve(ctx context.Context) error {
	defer s.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	notify := s.notify
	ended := make(chan struct{})
	defer func() { <-ended }()
	context.AfterFunc(ctx, func() {
		notify.end()
		close(ended)
	})
	defer cancel()
	if s.relay != nil {
		work.Go(func() { s.relay.serve(ctx) })
		context.AfterFunc(ctx, func() { s.dns.Close() })
		work.Go(func() { s.names.serve(s.dns) })
	}
	slots := make(chan struct{}, maxCalls)
	for {
		c, err := notify.receive()
		if err != nil && ctx.Err() == nil && err != errEnded {
			return err
		} else if err != nil {
			return nil
		}
		if s.root == nil {
			s.openRoot(notify, c)
		}
		if call, ok := shim.FileCalls[c.Number]; ok && !call.Moves && !call.Links {
			s.answerFile(ctx, notify, c, call) // answering here is faster than starting a goroutine
			continue
		}
		select {
		case slots <- struct{}{}: // every answer takes a limited time, so a slot becomes free
		case <-ctx.Done():
			return nil
		}
		work.Go(func() {
			s.answer(ctx, notify, c)
			<-slots
		})
		runtime.Gosched() // let the answer begin before the next receive blocks this thread
	}
}

// openRoot opens the root folder of the sandbox. All processes of the sandbox have the same root folder, because the
// filter refuses the calls that would change it.
func (s *Supervisor) openRoot(notify *notifier, c *notification) {
	root, err := os.OpenFile(c.proc("root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil && notify.waiting(c) {
		s.root = root
		return
	}
	root.Close()
}

// openInside opens a path in the sandbox, but not for reading or writing. Links in the path lead to files in the
// sandbox.
func (s *Supervisor) openInside(path string, flags uint64) (int, error) {
	if s.root == nil {
		return -1, unix.ESRCH
	}
	return unix.Openat2(int(s.root.Fd()), path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// answer handles one reported system call.
func (s *Supervisor) answer(ctx context.Context, notify *notifier, c *notification) {
	switch c.Number {
	case unix.SYS_CONNECT:
		s.connect(ctx, notify, c)
	case unix.SYS_EXECVE, unix.SYS_EXECVEAT:
		first := s.started.CompareAndSwap(false, true)
		path := c.executed()
		if !first {
			s.observe(c, agent.CanExecute, path)
		}
		if first || !s.NoExec || s.listed(path) {
			notify.resume(c)
			return
		}
		if s.OnExec != nil {
			s.OnExec(path)
		}
		notify.fail(c, unix.EACCES)
	default:
		if call, ok := shim.FileCalls[c.Number]; ok {
			s.answerFile(ctx, notify, c, call)
			return
		}
		notify.fail(c, unix.EPERM)
	}
}

// answerFile reports the use of a file to Observe and lets the kernel carry out the call. A call that changes a file is
// reported before the kernel carries it out, so that Observe can check whether the file existed before the call. Other
// calls are reported afterwards, so that the program does not wait.
func (s *Supervisor) answerFile(ctx context.Context, notify *notifier, c *notification, call shim.FileCall) {
	if call.Moves || call.Links {
		s.Moving.RLock()
		defer s.Moving.RUnlock()
	}
	kind, path := c.file(call)
	source := ""
	if call.Moves {
		_, source = c.file(call.Source())
	}
	valid := notify.waiting(c)
	if valid && kind == agent.CanWrite {
		s.observe(c, kind, path)
		s.observe(c, agent.CanWrite, source)
		if call.Moves && s.replaced(ctx, notify, c, path, source) {
			return
		}
	}
	notify.resume(c)
	if valid && kind != agent.CanWrite {
		s.observe(c, kind, path)
	}
}

// observe reports the use of a file. The path is empty if it could not be read.
func (s *Supervisor) observe(c *notification, kind agent.RightKind, path string) {
	if s.Observe == nil || path == "" {
		return
	}
	s.Observe(agent.Right{Kind: kind, What: path}, func() bool {
		fd, err := s.openInside(path, unix.O_NOFOLLOW)
		if err == nil {
			unix.Close(fd)
		}
		return err == nil
	})
}

// listed reports whether a path is in Programs, or in a folder in Programs.
func (s *Supervisor) listed(path string) bool {
	return slices.ContainsFunc(s.Programs, func(program string) bool {
		return path == program || strings.HasPrefix(path, program+"/")
	})
}

// notification is the kernel's struct seccomp_notif.
type notification struct {
	ID     uint64
	Thread uint32
	Flags  uint32
	Number int32
	Arch   uint32
	IP     uint64
	Args   [6]uint64
}

// response is the kernel's struct seccomp_notif_resp.
type response struct {
	ID    uint64
	Val   int64
	Error int32
	Flags uint32
}

// notifier receives the system calls that the kernel reports. While it waits, it blocks its thread in the kernel
// instead of using Go's scheduler, because the scheduler would wake a second thread for each call.
type notifier struct {
	fd   int // the descriptor of Sockets.Notify
	stop int // an eventfd that becomes readable when receive must end
}

func newNotifier(f *os.File) (*notifier, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	n := &notifier{fd: int(f.Fd()), stop: stop}
	// Ask the kernel to wake ambit on the processor of the waiting thread. Linux before 6.6 lacks the flag, so the error
	// is ignored.
	unix.IoctlSetInt(n.fd, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	return n, nil
}

// end makes receive fail.
func (n *notifier) end() { unix.Write(n.stop, binary.NativeEndian.AppendUint64(nil, 1)) }

// errEnded means that every process of the sandbox has ended, or that [notifier.end] was called.
var errEnded = errors.New("the sandbox has ended")

// receive waits for the next system call.
func (n *notifier) receive() (*notification, error) {
	wait := []unix.PollFd{{Fd: int32(n.fd), Events: unix.POLLIN}, {Fd: int32(n.stop), Events: unix.POLLIN}}
	for {
		// The kernel's receive cannot be interrupted, so wait with poll first.
		if _, err := unix.Poll(wait, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return nil, err
		}
		switch on := wait[0].Revents; {
		case wait[1].Revents != 0 || on&unix.POLLIN == 0 && on&unix.POLLHUP != 0:
			return nil, errEnded
		case on&unix.POLLIN == 0: // a signal interrupted the kernel while it looked for a call
			continue
		}
		c := &notification{}
		switch err := n.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(c)); err {
		case unix.ENOENT, unix.EINTR: // the thread was killed
		default:
			return c, err
		}
	}
}

// waiting reports whether the thread still waits for the answer. If it does not, the thread's id may already belong
// to another thread, so everything that was read with this id is invalid.
func (n *notifier) waiting(c *notification) bool {
	return n.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&c.ID)) == nil
}

// succeed makes the call return 0, and fail makes it return an error. Both do nothing if the thread has been killed.
func (n *notifier) succeed(c *notification) { n.respond(response{ID: c.ID}) }

func (n *notifier) fail(c *notification, errno unix.Errno) {
	n.respond(response{ID: c.ID, Error: -int32(errno)})
}

// resume lets the kernel carry out the call.
func (n *notifier) resume(c *notification) {
	n.respond(response{ID: c.ID, Flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
}

func (n *notifier) respond(r response) { n.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) }

func (n *notifier) ioctl(request uintptr, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(n.fd), request, uintptr(arg))
		switch {
		case errno == 0:
			return nil
		case errno != unix.EINTR || request == unix.SECCOMP_IOCTL_NOTIF_RECV: // receive polls again after EINTR
			return errno
		}
	}
}

// peek copies memory of the calling thread. It returns fewer bytes if the mapping ends earlier.
func (c *notification) peek(address uint64, size int) []byte {
	if size <= 0 {
		return nil
	}
	b := make([]byte, size)
	local := []unix.Iovec{{Base: &b[0], Len: uint64(size)}}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: size}}
	n, err := unix.ProcessVMReadv(int(c.Thread), local, remote, 0)
	if err != nil {
		return nil
	}
	return b[:n]
}

// executed returns the absolute path of the file in an execve.
func (c *notification) executed() string {
	if c.Number == unix.SYS_EXECVEAT {
		return c.path(0, 1)
	}
	return c.path(-1, 0)
}

// file returns the absolute path of the file in a call, and whether the call inspects, reads or writes the file.
func (c *notification) file(call shim.FileCall) (agent.RightKind, string) {
	path := c.path(call.Dir, call.Path)
	if call.Looks {
		return shim.Look, path
	}
	if call.Flags < 0 {
		return agent.CanWrite, path
	}
	flags := c.Args[call.Flags]
	if c.Number == unix.SYS_OPENAT2 {
		b := c.peek(flags, 8)
		if len(b) < 8 {
			return agent.CanRead, ""
		}
		flags = binary.NativeEndian.Uint64(b)
	}
	if flags&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC) != 0 {
		return agent.CanWrite, path
	}
	return agent.CanRead, path
}

// path returns the absolute path in an argument of a call. A relative path starts at the folder in the argument dir,
// or at the working directory if dir is negative. If the path cannot be read, the result is "".
func (c *notification) path(dir, argument int) string {
	base := "cwd"
	if dir >= 0 && int32(c.Args[dir]) != unix.AT_FDCWD {
		base = "fd/" + strconv.Itoa(int(int32(c.Args[dir])))
	}
	return c.absolute(base, c.text(c.Args[argument]))
}

// absolute returns the absolute form of a path. A relative path starts at the target of a link in the thread's /proc
// folder. The parameter base is the name of the link, such as cwd. The result is "" if the path is empty or the link
// cannot be read.
func (c *notification) absolute(base, path string) string {
	if path == "" || path[0] == '/' {
		return path
	}
	folder, err := os.Readlink(c.proc(base))
	if err != nil {
		return ""
	}
	return folder + "/" + path
}

// proc returns the path of a file in the thread's folder in /proc.
func (c *notification) proc(name string) string {
	return "/proc/" + strconv.Itoa(int(c.Thread)) + "/" + name
}

// text returns the NUL-terminated string at an address in the thread's memory.
func (c *notification) text(address uint64) string {
	// A read across the end of a mapping returns no bytes, so stop at the end of the page.
	page := uint64(os.Getpagesize())
	text := c.peek(address, int(page-address%page))
	if len(text) > 0 && !bytes.Contains(text, []byte{0}) {
		text = append(text, c.peek(address-address%page+page, int(page))...)
	}
	path, _, _ := bytes.Cut(text, []byte{0})
	if len(path) >= unix.PathMax {
		return "" // the kernel also refuses such a path
	}
	return string(path)
}
