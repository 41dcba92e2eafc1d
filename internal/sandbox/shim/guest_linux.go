package shim

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// guest is the shim where gVisor is the kernel, which has been told everything
// that there is to put on.
func guest() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return lacking("close_range", err)
	}
	for _, dir := range p.ReadWrite {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return lacking("mounts", err)
		}
	}
	var out net.Listener
	if p.Listen {
		if out, err = net.Listen("tcp", ProxyAddress); err != nil {
			return lacking("network namespace", err)
		}
	}
	send(Message{Kind: Worn}, nil)
	o, err := await()
	if err != nil {
		return err
	}
	if out == nil {
		return obey(o)
	}
	return beside(o, out)
}

// beside runs the program as a child, and leads what connects to the proxy's
// address outside.
func beside(o *Order, out net.Listener) error {
	if err := os.Chdir(o.Dir); err != nil {
		return lacking("mounts", err)
	}
	// The program has no business in here, of the same user though it is.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return lacking("dumpable", err)
	}
	go func() {
		for {
			from, err := out.Accept()
			if err != nil {
				return
			}
			to, err := dial()
			if err != nil {
				from.Close()
				continue
			}
			go lead(from, to)
		}
	}()
	send(Message{Kind: Ready}, nil)
	cmd := &exec.Cmd{Path: find(o), Args: o.Argv, Env: o.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		send(Message{Kind: NotStarted, Text: err.Error()}, nil)
		syscall.Exit(127)
	}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		f.Close() // they are the program's, to close when it wants
	}
	err := cmd.Wait()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
	}
	syscall.Exit(code)
	return nil
}

// dial asks ambit for a connection. Only one asks at a time.
func dial() (*os.File, error) {
	send(Message{Kind: Dial}, nil)
	var word [1]byte
	rights := make([]byte, unix.CmsgSpace(4))
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		_, n, _, _, err = unix.Recvmsg(FDControl, word[:], rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("there is no way out")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("there is no way out")
	}
	return os.NewFile(uintptr(fds[0]), "way out"), nil
}

func lead(from net.Conn, to *os.File) {
	defer from.Close()
	defer to.Close()
	done := make(chan struct{})
	go func() {
		io.Copy(to, from)
		unix.Shutdown(int(to.Fd()), unix.SHUT_WR)
		close(done)
	}()
	io.Copy(from, to)
	from.(*net.TCPConn).CloseWrite()
	<-done
}
