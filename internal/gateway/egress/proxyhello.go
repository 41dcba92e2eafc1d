package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// hello is a ClientHello.
type hello struct {
	raw  []byte
	host string
}

var (
	errNotTLS    = errors.New("the first message is not TLS")
	errNoName    = errors.New("the ClientHello names no host")
	errOtherName = errors.New("the ClientHello names another host")
)

// readHello reads a ClientHello and keeps its bytes in raw. crypto/tls parses it, and the
// handshake is then aborted.
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

// names returns an error unless the message names the host.
func (h *hello) names(host string) error {
	if h.host == "" {
		return errNoName
	}
	if name, err := Host(h.host); err != nil || name != host {
		return errOtherName
	}
	return nil
}

// listening is a connection that only reads.
type listening struct{ io.Reader }

func (listening) Write(b []byte) (int, error)      { return len(b), nil }
func (listening) Close() error                     { return nil }
func (listening) LocalAddr() net.Addr              { return nil }
func (listening) RemoteAddr() net.Addr             { return nil }
func (listening) SetDeadline(time.Time) error      { return nil }
func (listening) SetReadDeadline(time.Time) error  { return nil }
func (listening) SetWriteDeadline(time.Time) error { return nil }
