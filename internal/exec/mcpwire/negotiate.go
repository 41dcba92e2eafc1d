package mcpwire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

const (
	modernVersion  = "2026-07-28"
	offeredVersion = "2025-11-25"
)

// legacyVersions are the supported revisions with a handshake.
var legacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", offeredVersion}

// Error codes that only 2026-07-28 has.
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// Server is the server's description of itself from the greeting.
type Server struct {
	Version string         // the protocol revision in use
	Modern  bool           // without a handshake: 2026-07-28
	Result  jsontext.Value // the answer to server/discover or initialize, as written
}

// Capabilities returns the server's capabilities as written, or nil.
func (s *Server) Capabilities() jsontext.Value { return rawjson.Lookup(s.Result, "capabilities") }

// negotiation happens once; turn is its lock.
type negotiation struct {
	turn   chan struct{}
	done   bool
	server *Server
	err    error
}

// Negotiate agrees on a protocol revision with the server. It probes for 2026-07-28 first; a server that
// refuses, does not know it or stays silent for [Options.ProbeTimeout] gets the handshake of 2025-11-25 and
// earlier. Further calls return the result of the first.
func (c *Conn) Negotiate(ctx context.Context) (*Server, error) {
	n := &c.negotiation
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !n.done {
		n.done = true
		if n.server, n.err = c.negotiate(ctx); n.err == nil {
			c.listen(ctx, n.server)
		}
	}
	return n.server, n.err
}

func (c *Conn) negotiate(ctx context.Context) (*Server, error) {
	if !isObject(c.opts.Capabilities) {
		return nil, notSent(errors.New("the client's capabilities are not a JSON object"))
	}
	if !c.opts.Legacy {
		if s, err := c.discover(ctx); s != nil || err != nil {
			return s, err
		}
	}
	s, err := c.initialize(ctx)
	switch {
	case err == nil:
		return s, nil
	case c.http != nil:
		status, ok := errors.AsType[*HTTPError](err)
		if ok && status.RPC == nil && slices.Contains(noPost, status.Status) && c.http.speaksOnlySSE(ctx, status.Status) {
			return nil, ErrSSEOnly
		}
	case !c.opts.Legacy && (errors.Is(err, ErrClosed) || ctx.Err() != nil):
		// The probe may have made the server exit.
		return nil, fmt.Errorf("%w: %w", ErrRespawnLegacy, err)
	}
	return nil, err
}

// noPost are the statuses of an HTTP+SSE address for a POST.
var noPost = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}

// discover probes for 2026-07-28. It returns neither a server nor an error if initialize must be tried.
func (c *Conn) discover(ctx context.Context) (*Server, error) {
	asking := ctx
	if !c.opts.Modern {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, c.opts.ProbeTimeout)
		defer cancel()
	}
	result, err := c.greet(asking, methodDiscover, modernVersion, func(b []byte) []byte {
		return append(c.appendMeta(append(b, `{"_meta":`...), nil, c.ownMeta, nil), '}')
	})
	if err == nil {
		versions := texts(rawjson.Lookup(result, "supportedVersions"))
		if slices.Contains(versions, modernVersion) {
			s := &Server{Version: modernVersion, Modern: true, Result: result}
			c.server.Store(s)
			return s, nil
		}
		return nil, c.fallBack(versions, nil)
	}
	rpc, isRPC := errors.AsType[*RPCError](err)
	status, isStatus := errors.AsType[*HTTPError](err)
	_, redirected := errors.AsType[*RedirectError](err)
	switch {
	case ctx.Err() != nil || redirected:
		return nil, err
	case errors.Is(err, ErrClosed) && c.http == nil && !c.opts.Modern:
		return nil, fmt.Errorf("%w: %w", ErrRespawnLegacy, err)
	case errors.Is(err, ErrClosed) || errors.Is(err, ErrNotSent):
		return nil, err
	case isRPC && rpc.Code == codeUnsupportedVersion:
		return nil, c.fallBack(texts(rawjson.Lookup(rpc.Data, "supported")), err)
	case isRPC && (rpc.Code == codeHeaderMismatch || rpc.Code == codeMissingCapability):
		return nil, err // a modern server, and the client's error
	case isStatus && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return nil, err // initialize would be refused, too
	default:
		return nil, c.fallBack(nil, err)
	}
}

// fallBack decides whether initialize may work with a server that speaks these versions; without versions,
// the server did not list any.
func (c *Conn) fallBack(versions []string, err error) error {
	common := slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(legacyVersions, v) })
	switch {
	case len(versions) > 0 && (c.opts.Modern || !common):
		return &VersionError{Server: versions}
	case c.opts.Modern && err == nil:
		return &VersionError{}
	case c.opts.Modern:
		return err
	}
	return nil
}

// initialize performs the handshake of 2025-11-25 and earlier.
func (c *Conn) initialize(ctx context.Context) (*Server, error) {
	result, err := c.greet(ctx, methodInitialize, "", func(b []byte) []byte {
		b = append(b, `{"protocolVersion":"`+offeredVersion+`","capabilities":`...)
		b = append(b, c.opts.Capabilities...)
		b = c.appendClientInfo(append(b, `,"clientInfo":`...))
		return append(b, '}')
	})
	if err != nil {
		return nil, err
	}
	version, _ := rawjson.Text(rawjson.Lookup(result, "protocolVersion"))
	if !slices.Contains(legacyVersions, version) {
		return nil, &VersionError{Server: []string{version}}
	}
	s := &Server{Version: version, Result: result}
	err = c.transport.send(ctx, outgoing{
		method: methodInitialized, version: version,
		body: []byte(`{"jsonrpc":"2.0","method":"` + methodInitialized + `"}`),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", methodInitialized, err)
	}
	c.server.Store(s)
	return s, nil
}

// greet sends one of the two requests that open a connection.
func (c *Conn) greet(ctx context.Context, method, version string, params func([]byte) []byte) (jsontext.Value, error) {
	id := c.ids.Add(1)
	body := append(params(appendHead(nil, id, method)), '}')
	return c.exchange(ctx, outgoing{body: body, id: id, method: method, version: version, quiet: true}, nil, nil)
}

// renew replaces a session that the server has lost, unless another call has done so.
func (c *Conn) renew(ctx context.Context, lost string) error {
	select {
	case c.negotiation.turn <- struct{}{}:
		defer func() { <-c.negotiation.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if now := c.http.session.Load(); now == nil || (*now)[0] != lost {
		return nil
	}
	s, err := c.initialize(ctx)
	if err != nil {
		return fmt.Errorf("making a new session: %w", err)
	}
	if c.opts.OnGap != nil {
		c.opts.OnGap(true)
	}
	c.listen(ctx, s)
	return nil
}

// texts reads an array of strings.
func texts(raw []byte) (list []string) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	w := rawjson.Walk(raw)
	for e, ok := w.Element(); ok && len(list) < 100; e, ok = w.Element() {
		if s, ok := rawjson.Text(e); ok {
			list = append(list, s)
		}
	}
	return list
}
