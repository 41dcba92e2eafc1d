package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// hello is the first message of TLS, as it came.
type hello struct {
	raw  []byte
	host string
}

var (
	errNotTLS    = errors.New("it does not begin with TLS")
	errNoName    = errors.New("it names no host")
	errOtherName = errors.New("it names another host")
)

// readHello reads a ClientHello. What was read stays in raw. The library reads
// it; its handshake ends there.
func readHello(from io.Reader) (*hello, error) {
	h := &hello{}
	var raw bytes.Buffer
	seen := false
	server := tls.Server(listening{io.TeeReader(from, &raw)}, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		seen, h.host = true, info.ServerName
		return nil, io.EOF
	}})
	if err := server.Handshake(); !seen {
		return nil, errors.Join(errNotTLS, err)
	}
	h.raw = raw.Bytes()
	return h, nil
}

// names wants the message to be for a host.
func (h *hello) names(host string) error {
	if h.host == "" {
		return errNoName
	}
	if name, err := Host(h.host); err != nil || name != host {
		return errOtherName
	}
	return nil
}

// listening is a connection that only listens.
type listening struct{ io.Reader }

func (listening) Write(b []byte) (int, error)      { return len(b), nil }
func (listening) Close() error                     { return nil }
func (listening) LocalAddr() net.Addr              { return nil }
func (listening) RemoteAddr() net.Addr             { return nil }
func (listening) SetDeadline(time.Time) error      { return nil }
func (listening) SetReadDeadline(time.Time) error  { return nil }
func (listening) SetWriteDeadline(time.Time) error { return nil }
