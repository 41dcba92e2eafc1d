package daemon

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// "ambit run" joins a daemon through a Unix socket in the folder run of the home. Both sides check that the other
// process belongs to the same user of the operating system. The joining process sends one line, a [Hello], and the
// daemon answers with one line. If the daemon accepts, MCP messages of exactly one agent follow, one per line, as on
// standard input and output. The client has the principal that it has with "ambit run", <os user>@local, and the rights
// of a client: no message decides an approval or reaches the API. The daemon accepts only if its agent behaves like an
// agent that "ambit run" starts itself, except that it shares its servers.

const (
	// maxJoined is the maximum number of open connections of joined clients.
	maxJoined = 250
	// maxHello is the maximum size of a Hello in bytes.
	maxHello = 256 << 10
	// acceptPause is the pause after a connection could not be accepted.
	acceptPause = 100 * time.Millisecond
	// helloTime is how long the daemon waits for a Hello, and for the process to read the answer.
	helloTime = 10 * time.Second
	// joinTime is how long "ambit run" waits for the daemon's answer.
	joinTime = 2 * time.Second
)

// ownUser returns the user of this process. Tests replace it.
var ownUser = os.Geteuid

// Terms contains the settings that apply to all agents of a process. A process can join only if its terms are those of
// the daemon. Messages contain the keys, so a key names its setting as a person knows it.
type Terms map[string]string

// Hello is the first line that a joining process sends.
type Hello struct {
	Terms Terms  `json:"terms"`
	Agent string `json:"agent"` // the agent's name
	Seal  string `json:"seal"`  // see [Seal]
	Work  string `json:"work"`  // the working folder
	// Variables contains a digest of the value of each environment variable. Salt is part of each digest.
	Variables map[string]string `json:"variables"`
	Salt      string            `json:"salt"`
	// Older and Capabilities describe the client; see [host.Guest].
	Older        bool           `json:"older"`
	Capabilities jsontext.Value `json:"capabilities,omitempty"`
}

// helloAnswer is the daemon's answer to a Hello. If the daemon refuses, Reason says why; otherwise, it is empty.
type helloAnswer struct {
	Reason string `json:"reason,omitempty"`
}

// Seal returns a digest of a manifest, its path, and the lock file in its folder.
func Seal(path string, m *manifest.Manifest) (string, error) {
	f := Found{Path: path, Manifest: m}
	f.readLock(new(lockFile))
	return f.seal, f.Problem
}

// SetEnvironment fills in the digests of this process's environment variables.
func (h *Hello) SetEnvironment(environ []string) {
	h.Salt, h.Variables = rand.Text(), map[string]string{}
	for _, v := range environ {
		if name, value, _ := strings.Cut(v, "="); value != "" {
			h.Variables[name] = h.digest(value)
		}
	}
}

func (h *Hello) digest(value string) string {
	sum := sha256.Sum256([]byte(h.Salt + value))
	return base64.RawStdEncoding.EncodeToString(sum[:16])
}

func (h *Hello) sameVariable(name string) bool {
	own := ""
	if value := os.Getenv(name); value != "" {
		own = h.digest(value)
	}
	return h.Variables[name] == own
}

// ListenJoin listens on the socket for joining processes. It fails if the path is too long for a socket, or if ambit
// cannot determine the user of a peer on this system.
func ListenJoin(path string) (*net.UnixListener, error) {
	if !knowsPeers {
		return nil, errors.New("this system does not report which user opened a connection")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}

// ServeJoins serves joining processes until ctx is done, and returns when all of them have left.
func (d *Daemon) ServeJoins(ctx context.Context, l *net.UnixListener) {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	free := make(chan struct{}, maxJoined)
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example, the process has too many open files
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case free <- struct{}{}:
		default:
			refuse(conn, "too many clients have joined")
			conn.Close()
			continue
		}
		sessions.Go(func() {
			defer func() { <-free }()
			defer conn.Close()
			d.join(ctx, conn)
		})
	}
}

// join serves one joining process.
func (d *Daemon) join(ctx context.Context, conn *net.UnixConn) {
	if !sameUser(conn) {
		return
	}
	stopClosing := context.AfterFunc(ctx, func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(helloTime)) // it fails only if the connection is closed
	in := bufio.NewReaderSize(conn, maxHello)
	line, err := in.ReadSlice('\n')
	if err != nil || !stopClosing() {
		return
	}
	var hello Hello
	if err := json.Unmarshal(line, &hello); err != nil {
		return
	}
	v, err := d.admit(&hello)
	if err != nil {
		refuse(conn, err.Error())
		return
	}
	defer v.leave()
	if _, err := conn.Write(encode(helloAnswer{})); err != nil || conn.SetDeadline(time.Time{}) != nil {
		return
	}
	retired, left := v.untilRetired(context.Background())
	defer left()
	session, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(retired, func() {
		_ = conn.CloseRead() // the client's calls can still finish, but no new call begins
		time.AfterFunc(d.options.Grace, func() { cancel(); conn.Close() })
	})()
	_ = v.running.ServeJoined(session, identity.LocalName(), in, conn) // the client may be gone
}

// refuse tells a joining process why it cannot join.
func refuse(conn *net.UnixConn, reason string) {
	_ = conn.SetWriteDeadline(time.Now().Add(helloTime))
	_, _ = conn.Write(encode(helloAnswer{Reason: reason})) // the process may be gone
}

// admit returns the agent for a joining process. Otherwise, the error is the reason why the process cannot join.
func (d *Daemon) admit(h *Hello) (*visit, error) {
	own := d.options.JoinTerms
	for _, term := range slices.Sorted(maps.Keys(own)) {
		if own[term] != h.Terms[term] {
			return nil, fmt.Errorf("it has another %s", term)
		}
	}
	if len(own) != len(h.Terms) {
		return nil, errors.New("it is another version of ambit")
	}
	e := d.fleet.current.Load().byName[h.Agent]
	if e == nil || e.rejected() {
		return nil, errors.New("it does not serve the agent " + h.Agent)
	}
	var allowed map[string]string
	if d.options.Allowed != nil {
		var err error
		if allowed, err = d.options.Allowed(); err != nil {
			return nil, errors.New("it cannot read the rights of the agents' servers")
		}
	}
	if e.seal != h.Seal+allowed[h.Agent] {
		return nil, errors.New(
			"it has read another manifest, ambit.lock or set of allowed rights; to update it, run: ambit reload")
	}
	if e.isParked() {
		return nil, errors.New("it has stopped the agent's servers, because they were idle")
	}
	running, leave, ok := e.enter()
	if !ok {
		return nil, errLeaving
	}
	err := running.Shareable(host.Guest{
		Work: h.Work, SameVariable: h.sameVariable, Older: h.Older, Capabilities: h.Capabilities,
	})
	if err == nil {
		err = e.ended()
	}
	if err != nil {
		leave()
		return nil, err
	}
	return &visit{e, running, leave}, nil
}

// isParked reports whether the agent's servers are not running.
func (e *entry) isParked() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running == nil
}

// Joined is a connection to a daemon that serves this process's client.
type Joined struct {
	*net.UnixConn
	// Lines contains the messages from the daemon.
	Lines *bufio.Reader
}

// NotJoinedError is the reason why a daemon does not let a process join.
type NotJoinedError struct{ Reason string }

func (e *NotJoinedError) Error() string { return e.Reason }

// DialJoin connects to the daemon's socket for joining processes. It returns ErrNoDaemon if the daemon has no such
// socket or is no longer running, or if another user owns the socket.
func (c *Client) DialJoin() (*Joined, error) {
	if c.Socket == "" || !knowsPeers {
		return nil, ErrNoDaemon
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Socket, Net: "unix"})
	if err != nil {
		return nil, ErrNoDaemon
	}
	if !sameUser(conn) {
		conn.Close()
		return nil, ErrNoDaemon
	}
	return &Joined{conn, bufio.NewReaderSize(conn, 64<<10)}, nil
}

// Ask asks the daemon to serve the client. It returns a *NotJoinedError if the daemon refuses or does not answer soon.
// After an error, the caller must close the connection.
func (j *Joined) Ask(h *Hello) error {
	text := encode(h)
	if len(text) > maxHello {
		return &NotJoinedError{"the environment is too large"}
	}
	_ = j.SetDeadline(time.Now().Add(joinTime)) // it fails only if the connection is closed
	_, err := j.Write(text)
	var line []byte
	if err == nil {
		line, err = j.Lines.ReadSlice('\n')
	}
	var answer helloAnswer
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	switch {
	case err != nil:
		return &NotJoinedError{"it does not answer"}
	case answer.Reason != "":
		return &NotJoinedError{answer.Reason}
	}
	return j.SetDeadline(time.Time{})
}
