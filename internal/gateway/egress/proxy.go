package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// maxRequest bounds the head of a request to the proxy.
const maxRequest = 16 << 10

// Serve runs an HTTP proxy for a gVisor sandbox, because such a sandbox has no supervisor. It accepts only CONNECT
// requests, and it runs until the listener is closed. It closes all connections before it returns.
func (n *Network) Serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	var tunnels sync.WaitGroup
	defer tunnels.Wait()
	defer cancel()
	slots := make(chan struct{}, maxConnections) // a connection needs a slot even before it has sent CONNECT
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		tunnels.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			n.tunnel(ctx, conn)
		})
	}
}

// tunnel serves one connection. The connection carries one CONNECT request.
func (n *Network) tunnel(ctx context.Context, conn net.Conn) {
	conn.SetDeadline(time.Now().Add(greetingTime))
	head := &io.LimitedReader{R: conn, N: maxRequest}
	buffered := bufio.NewReader(head)
	refuse := func(format string, args ...any) {
		r := call.Refuse(Stage, call.HostNotAllowed, format, args...)
		n.report(Decision{Refusal: r})
		sendRefusal(conn, r)
	}
	req, err := http.ReadRequest(buffered)
	if err != nil {
		if head.N < maxRequest { // answer only if the program has sent something
			refuse("the request to the proxy cannot be parsed")
		}
		return
	}
	// The header counts toward the traffic, because the name of a host can carry data.
	if !n.count(maxRequest - head.N - int64(buffered.Buffered())) {
		refuse("%v", errShare)
		return
	}
	head.N = math.MaxInt64 // the limit maxRequest applies only to the header
	host, port, err := net.SplitHostPort(req.RequestURI)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if req.Method != http.MethodConnect || err != nil || portErr != nil || strings.ContainsAny(req.RequestURI, "[]") {
		refuse("the proxy accepts only CONNECT with a host and a port, not %s", diag.Quote(req.Method+" "+req.RequestURI))
		return
	}
	link, err := n.Open(ctx, host, uint16(number))
	if err != nil {
		sendRefusal(conn, dialRefusal(host, err))
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		link.Close()
		return
	}
	link.Carry(ctx, &bufferedConn{conn, buffered})
}

// bufferedConn is a connection whose first bytes have already been read.
type bufferedConn struct {
	net.Conn
	from io.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.from.Read(p) }

// CloseWrite signals to the program that the host's data has ended.
func (b *bufferedConn) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// sendRefusal sends a refusal to the program. The program may write the text to its log.
func sendRefusal(conn net.Conn, r *call.Refusal) {
	code := http.StatusForbidden
	if r.Code == call.ServerUnavailable {
		code = http.StatusBadGateway
	}
	resp := http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: -1,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(r.Error() + "\n")),
	}
	resp.Write(conn)
}
