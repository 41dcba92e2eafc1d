package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// hello is a TLS ClientHello.
type hello struct {
	raw  []byte
	host string // "" if the message contains no host name
}

var (
	errNotTLS    = errors.New("the first message is not TLS")
	errNoName    = errors.New("the TLS ClientHello contains no host name")
	errOtherName = errors.New("the TLS ClientHello contains a different host name")
)

// readHello reads a TLS ClientHello and keeps its bytes, so that they can be forwarded. It uses package crypto/tls to
// parse the message and then aborts the handshake.
func readHello(from io.Reader) (*hello, error) {
	h := &hello{}
	var raw bytes.Buffer
	seen := false
	config := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		seen, h.host = true, info.ServerName
		return nil, io.EOF
	}}
	if err := tls.Server(readOnlyConn{io.TeeReader(from, &raw)}, config).Handshake(); !seen {
		return nil, errors.Join(errNotTLS, err)
	}
	h.raw = raw.Bytes()
	return h, nil
}

// checkHost returns an error unless the message contains the given host name.
func (h *hello) checkHost(host string) error {
	if h.host == "" {
		return errNoName
	}
	if name, err := Host(h.host); err != nil || name != host {
		return errOtherName
	}
	return nil
}

// readOnlyConn is a connection that reads from a reader and discards all writes.
type readOnlyConn struct{ io.Reader }

func (readOnlyConn) Write(b []byte) (int, error)      { return len(b), nil }
func (readOnlyConn) Close() error                     { return nil }
func (readOnlyConn) LocalAddr() net.Addr              { return nil }
func (readOnlyConn) RemoteAddr() net.Addr             { return nil }
func (readOnlyConn) SetDeadline(time.Time) error      { return nil }
func (readOnlyConn) SetReadDeadline(time.Time) error  { return nil }
func (readOnlyConn) SetWriteDeadline(time.Time) error { return nil }
