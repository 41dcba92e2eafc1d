package toolserver

import "io"

// Launched is a server that somebody else has started, in a sandbox.
type Launched struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	// Stop ends it and everything it started. It tells how the program ended, if
	// it did so by itself, and may be called more than once.
	Stop func() error
}

// launched starts a program by the one who knows how.
func (s *server) launched() (*process, error) {
	l, err := s.options.Launch()
	if err != nil {
		return nil, err
	}
	p := &process{stdin: l.Stdin, stdout: l.Stdout, contained: true, elsewhere: l.Stop, drained: make(chan struct{})}
	close(p.drained) // its log goes elsewhere
	return p, nil
}

// stopElsewhere ends a program that somebody else has started.
func (p *process) stopElsewhere() {
	p.stdin.Close()
	p.err = p.elsewhere()
}
