//go:build amd64 || arm64

package sandbox

import (
	"context"
	_ "embed"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

// Pool holds sandboxes that were made in advance. A run that takes a sandbox from a pool starts sooner.
//
// Every sandbox has a shape: its mounts, its limits, and whether it has network access. A run takes a sandbox of the
// right shape and adds the program, the environment, the input and the network policy. Each sandbox is used once.
// After a run, the pool makes another sandbox of the same shape. In a full pool, the new sandbox replaces the oldest
// sandbox of a different shape.
//
// A pool can also start python3 and node in advance. The interpreter then executes one of ambit's scripts, which
// waits for the run. Until the run starts, the interpreter reads none of the program's files.
type Pool struct {
	size         int
	interpreters bool

	mu     sync.Mutex
	spare  []*running // oldest first
	making int
	closed bool
	work   sync.WaitGroup
}

// NewPool returns a pool. The parameter size is the maximum number of sandboxes in the pool. If interpreters is true,
// the pool also starts python3 and node in advance. The caller must close the pool.
func NewPool(size int, interpreters bool) *Pool { return &Pool{size: size, interpreters: interpreters} }

var (
	errClosed = errors.New("the pool is closed")
	errEnded  = errors.New("the sandbox exited before it was used")
)

// Prepare makes a sandbox for runs with the given spec and waits until the sandbox is ready. It does nothing if the
// pool is already full of sandboxes of this shape. It also does nothing if the tier is Strong or a mount is writable,
// because such runs never use a pool.
func (p *Pool) Prepare(ctx context.Context, s Spec) error {
	s.defaults()
	if !p.accepts(&s) {
		return nil
	}
	m, err := findProven(ctx, Standard, s.Proofs)
	if err != nil {
		return err
	}
	r, err := p.makeSandbox(m, p.shape(&s))
	if err != nil || r == nil {
		return asRefusal(s.Tier, err)
	}
	select {
	case <-r.idle:
		return nil
	case <-r.exited:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Waiting returns the number of prepared sandboxes.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spare)
}

// Close terminates the prepared sandboxes and stops the pool from making more. Runs in progress continue.
func (p *Pool) Close() {
	p.mu.Lock()
	spare := p.spare
	p.spare, p.closed = nil, true
	p.mu.Unlock()
	for _, r := range spare {
		r.terminate()
	}
	p.work.Wait()
}

// accepts reports whether a run can use a sandbox from the pool. A run with a writable folder cannot use one, because
// making a sandbox in advance would already change the folder's owner.
func (p *Pool) accepts(s *Spec) bool {
	return p != nil && s.Tier == Standard && !slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Write })
}

// shape returns the shape of a sandbox for the run. It includes the interpreter if the interpreter can be started
// in advance.
func (p *Pool) shape(s *Spec) shape {
	sh := shapeOf(s)
	if p.interpreters {
		sh.prestart(s)
	}
	return sh
}

// run executes a program in a prepared sandbox. If the pool has no suitable sandbox, or the sandbox dies before the
// program starts, the program runs in a new sandbox.
func (p *Pool) run(ctx context.Context, m *machine, s *Spec) (Outcome, error) {
	begun := time.Now()
	sh := p.shape(s)
	defer p.refill(m, sh)
	if r := p.take(sh.key()); r != nil {
		o := order(s, "")
		if sh.interpreter != "" {
			o = nil // an order starts a program, but the interpreter is already running
		}
		out, _, err := r.execute(ctx, s, o, begun)
		// A setup error means that the sandbox died before the program started, so a new sandbox can be used.
		if _, died := errors.AsType[*setupError](err); !died {
			return out, err
		}
	}
	out, _, err := m.run(ctx, s, "")
	return out, err
}

// take removes a sandbox with the given shape key from the pool and returns the sandbox. It prefers an idle sandbox
// to a sandbox that is still starting. It returns nil if the pool has no sandbox with the key.
func (p *Pool) take(key string) *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found *running
	p.spare = slices.DeleteFunc(p.spare, func(r *running) bool {
		if r.shape.key() != key {
			return false
		}
		if r.hasExited() || !r.unchanged() {
			p.work.Go(func() { r.terminate() })
			return true
		}
		if found == nil || !found.isIdle() && r.isIdle() {
			found = r
		}
		return false
	})
	p.spare = slices.DeleteFunc(p.spare, func(r *running) bool { return r == found })
	return found
}

func (p *Pool) refill(m *machine, s shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(func() { p.makeSandbox(m, s) }) // if this fails, the next run reports the error
	}
}

// makeSandbox adds a new sandbox to the pool and returns the sandbox. In a full pool, the new sandbox replaces the
// oldest sandbox of a different shape. If the pool is already full of sandboxes of this shape, makeSandbox returns nil.
func (p *Pool) makeSandbox(m *machine, s shape) (*running, error) {
	key := s.key()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	var replaced *running
	if len(p.spare)+p.making >= p.size {
		i := slices.IndexFunc(p.spare, func(r *running) bool { return r.shape.key() != key })
		if i < 0 {
			p.mu.Unlock()
			return nil, nil
		}
		replaced = p.spare[i]
		p.spare = slices.Delete(p.spare, i, i+1)
	}
	p.making++
	p.work.Add(1) // Close waits until this is done
	defer p.work.Done()
	p.mu.Unlock()
	if replaced != nil {
		replaced.terminate()
	}
	r, err := m.prepare(s)
	if err == nil && s.interpreter != "" {
		err = r.sendOrder(s.prestartOrder())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making--
	switch {
	case r == nil:
		return nil, err
	case err == nil && !p.closed:
		p.spare = append(p.spare, r)
		return r, nil
	case err == nil:
		err = errClosed
	}
	p.work.Go(func() { r.terminate() })
	return nil, err
}

// A prestarted interpreter executes one of these scripts. The script writes one byte and waits until it can read one
// byte. Then it runs the program as if the interpreter had executed the program directly.
var (
	//go:embed gate.py
	pythonGate string
	//go:embed gate.cjs
	nodeGate string
)

const gateFolder = "/etc/ambit/"

// gateScript returns the path and the text of the script that an interpreter executes while it waits.
func gateScript(interpreter string) (file, text string) {
	if interpreter == "node" {
		return gateFolder + "gate.cjs", nodeGate
	}
	return gateFolder + "gate.py", pythonGate
}

// interpreterEnv lists the prefixes of environment variables that can make an interpreter load files. If a run sets
// such a variable, the pool does not prestart the run's interpreter.
var interpreterEnv = []string{"PYTHON", "NODE_", "LD_", "GCONV_", "LOCPATH", "OPENSSL_"}

// prestart adds the program's interpreter to the shape if the pool can start it in advance. The program must be
// python3 or node with a script as its first argument.
func (sh *shape) prestart(s *Spec) {
	if len(s.Argv) < 2 || strings.HasPrefix(s.Argv[1], "-") || s.Argv[0] != "python3" && s.Argv[0] != "node" {
		return
	}
	for _, e := range s.Env {
		loads := func(prefix string) bool { return strings.HasPrefix(e, prefix) }
		if slices.ContainsFunc(interpreterEnv, loads) && !isCertificateFile(e) {
			return
		}
	}
	sh.interpreter, sh.argv, sh.env, sh.dir = s.Argv[0], s.Argv, environment(s), s.Dir
}

// isCertificateFile reports whether a variable is NODE_EXTRA_CA_CERTS with an absolute path. ambit sets this variable
// itself. The variable is safe, because node loads only certificates from the file.
func isCertificateFile(variable string) bool {
	file, ok := strings.CutPrefix(variable, "NODE_EXTRA_CA_CERTS=")
	return ok && filepath.IsAbs(file)
}

// prestartOrder returns the [shim.Order] that starts the interpreter with its gate script.
func (sh *shape) prestartOrder() *shim.Order {
	file, _ := gateScript(sh.interpreter)
	argv := append([]string{sh.argv[0], file}, sh.argv[1:]...)
	return &shim.Order{Argv: argv, Env: sh.env, Dir: sh.dir, Gate: true}
}
