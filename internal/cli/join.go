package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// joinTerms returns the settings that must be equal in a daemon and in a process that joins it. Files that are read
// again for every call, such as the policy, need no comparison.
func joinTerms(h home.Home, a gateway.Approvals, expose gateway.Exposed) (daemon.Terms, error) {
	settings := sha256.New()
	for _, file := range []string{h.Config(), h.Guardrails()} {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		sum := sha256.Sum256(text)
		settings.Write(sum[:])
	}
	user, err := os.UserHomeDir()
	return daemon.Terms{
		"version": version, "user": identity.LocalName(), "AMBIT_HOME": h.Dir(), "HOME": user,
		"config.toml or guardrails.json": hex.EncodeToString(settings.Sum(nil)),
		"--expose":                       strings.Join(slices.Compact(slices.Sorted(slices.Values(expose))), ","),
		"--approval-ttl":                 a.TTL.String(),
		"--trust-elicitation":            strconv.FormatBool(a.TrustElicitation),
	}, err
}

// serveJoins serves processes of "ambit run" on a socket. The returned function waits until they have left.
func serveJoins(ctx context.Context, d *daemon.Daemon, socket string) (stop func(), err error) {
	l, err := daemon.ListenJoin(socket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { d.ServeJoins(ctx, l) })
	return func() {
		cancel()
		serving.Wait()
	}, nil
}

// mayJoin reports whether the flags and the environment let a daemon serve the client.
func (f *runFlags) mayJoin(asked string) bool {
	switches, err := egress.Read(os.LookupEnv, f.loopbackHTTP, false)
	return f.join && asked != "-" && f.skill == "" && f.address == "" && !f.remote && len(f.unconfined) == 0 &&
		f.isolation.tier == string(sandbox.Standard) && err == nil && !switches.On()
}

// join lets the daemon of this home serve the client until the client leaves. It then returns a nil input. If no daemon
// can serve the client, or if the connection ends before the client leaves, join returns the input and output for an
// agent in this process.
func (t *terminal) join(ctx context.Context, f *runFlags, m *manifest.Manifest) (
	in io.Reader, out io.Writer, served bool, err error,
) {
	d, err := daemon.FindDaemon(t.home)
	if err != nil {
		return t.in, t.raw, false, nil
	}
	hello, err := t.hello(f, m)
	if hello == nil || err != nil {
		return t.in, t.raw, false, err
	}
	first, rest := firstLine(ctx, t.in)
	if ctx.Err() != nil {
		return nil, nil, false, nil
	}
	in = io.MultiReader(bytes.NewReader(first), rest)
	if !describeClient(hello, first) {
		return in, t.raw, false, nil
	}
	conn, err := d.DialJoin()
	if err != nil {
		return in, t.raw, false, nil
	}
	defer conn.Close()
	if err := conn.Ask(hello); err != nil {
		t.notef("starting the agent here, because the daemon at %s cannot serve it: %s", d.URL, diag.Printable(err.Error()))
		return in, t.raw, false, nil
	}
	t.notef("joined the daemon at %s (process %d)", d.URL, d.PID)
	b := newBridge(t.raw)
	if in, err = b.pass(ctx, in, conn); in == nil || err != nil {
		return nil, nil, true, err
	}
	t.warnf("the connection to the daemon was lost; this process now runs the agent itself")
	in, out = b.carryOn(in)
	return in, out, true, nil
}

// hello returns the values that the daemon compares with its own. It returns nil if no daemon can serve the agent, or
// if a value cannot be determined.
func (t *terminal) hello(f *runFlags, m *manifest.Manifest) (*daemon.Hello, error) {
	if !host.SharesCalls(m.Agent()) {
		return nil, nil
	}
	expose, err := exposed(f.expose)
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(m.Path)
	if err != nil {
		return nil, nil
	}
	terms, err := joinTerms(t.home, f.Approvals, expose)
	if err != nil {
		return nil, nil // the agent in this process reports the reason
	}
	seal, err := daemon.Seal(path, m)
	if err != nil {
		return nil, nil
	}
	work, err := os.Getwd()
	if err != nil {
		return nil, nil
	}
	h := &daemon.Hello{Terms: terms, Agent: registeredName(t.home, m), Seal: seal, Work: work}
	h.SetEnvironment(os.Environ())
	return h, nil
}

// maxFirst is the maximum size of the first message of a client that joins a daemon.
const maxFirst = 64 << 10

// firstLine reads the client's first line. It also returns a reader of the rest of the input.
func firstLine(ctx context.Context, in io.Reader) (first []byte, rest io.Reader) {
	lines := bufio.NewReaderSize(in, maxFirst)
	read := make(chan []byte, 1)
	go func() {
		line, _ := lines.ReadSlice('\n') // the next read returns the error again
		read <- bytes.Clone(line)
	}()
	select {
	case first = <-read:
	case <-ctx.Done():
	}
	return first, lines
}

// describeClient adds the client's protocol and capabilities to a Hello. It returns false if the client's first message
// does not contain them.
func describeClient(h *daemon.Hello, first []byte) bool {
	m, problem := mcpwire.ReadMessage(first)
	if problem != "" || m.ID == nil {
		return false
	}
	h.Older = m.Method == "initialize"
	h.Capabilities = rawjson.Lookup(m.Params, "capabilities")
	return h.Older || rawjson.Lookup(m.Params, "_meta", "io.modelcontextprotocol/protocolVersion") != nil
}
