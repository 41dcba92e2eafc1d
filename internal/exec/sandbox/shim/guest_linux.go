package shim

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// guest is the shim inside gVisor, which enforces the restrictions itself.
func guest() error {
	p, err := read[Plan](FDPlan, "plan")
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return mechanismError("close_range", err)
	}
	for _, dir := range p.ReadWrite {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return mechanismError("mounts", err)
		}
	}
	out := -1
	if p.Listen {
		if out, err = listener(); err != nil {
			return mechanismError("network namespace", err)
		}
	}
	send(Message{Kind: Restricted}, nil)
	o, err := awaitOrder()
	if err != nil {
		return err
	}
	if !p.Listen {
		return execute(o)
	}
	return executeChild(o, out)
}

// executeChild runs the program as a child, and relays connections to the proxy's
// address.
func executeChild(o *Order, out int) error {
	if err := os.Chdir(o.Dir); err != nil {
		return mechanismError("mounts", err)
	}
	// The program has the same user; it must not inspect this process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return mechanismError("dumpable", err)
	}
	go func() {
		for {
			fd, _, err := unix.Accept4(out, unix.SOCK_CLOEXEC)
			switch err {
			case nil:
			case unix.EINTR, unix.ECONNABORTED:
				continue
			default:
				return
			}
			from := os.NewFile(uintptr(fd), "program")
			to, err := dial()
			if err != nil {
				from.Close()
				continue
			}
			go relay(from, to)
		}
	}()
	send(Message{Kind: Ready}, nil)
	streams := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	child, err := os.StartProcess(find(o), o.Argv, &os.ProcAttr{Env: o.Env, Files: streams})
	if err != nil {
		send(Message{Kind: NotStarted, Text: err.Error()}, nil)
		syscall.Exit(127)
	}
	for _, f := range streams {
		f.Close() // only the program holds them now
	}
	end, err := child.Wait()
	if err != nil {
		return mechanismError("program", err)
	}
	code := end.ExitCode()
	if status, ok := end.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	syscall.Exit(code)
	return nil
}

// dial asks ambit for a connection. It is called by one goroutine only.
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

func relay(from, to *os.File) {
	defer from.Close()
	defer to.Close()
	done := make(chan struct{})
	go func() {
		io.Copy(to, from)
		unix.Shutdown(int(to.Fd()), unix.SHUT_WR)
		close(done)
	}()
	io.Copy(from, to)
	unix.Shutdown(int(from.Fd()), unix.SHUT_WR)
	<-done
}
