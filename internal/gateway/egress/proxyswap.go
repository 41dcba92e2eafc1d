package egress

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Swap is a secret for which a program has only a placeholder. The program sends the placeholder. In requests to
// the secret's hosts, the proxy replaces the placeholder with the secret.
//
// For these hosts, the proxy terminates TLS with a certificate from an [Authority], which only this program trusts.
// The proxy opens its own TLS connection to the host. Connections to all other hosts stay encrypted end to end, and
// their requests still contain the placeholder.
//
// The proxy inserts the secret only into header values, because hosts store, show and forward paths and bodies. It
// removes the secret and parts of it from answers, because a host may echo a request. It neither requests nor accepts
// partial answers, because they could reveal the secret piece by piece.
type Swap struct {
	Placeholder string
	// Value returns the secret. Because Value is a function, printing a Swap does not print the secret.
	Value func() string
	// Hosts are the hosts that receive the secret. The subdomains of these hosts receive it too.
	Hosts []string
}

// Finder finds secrets and parts of secrets in the answers of a host, in several encodings.
type Finder interface {
	// Find returns the start and end offsets of each secret in a text. The results are sorted and do not overlap. A
	// result can join several matches that overlap.
	Find(text []byte) [][2]int
	// Longest returns the maximum length in bytes of one match.
	Longest() int
	// InLine returns true if no secret contains a line break.
	InLine() bool
}

// Authority is a certificate authority. It signs the certificates that a proxy presents to one program. Its key
// exists only in memory.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	leafKey     *ecdsa.PrivateKey
}

// authorityTime is how long certificates are valid. It is much longer than a run.
const authorityTime = 366 * 24 * time.Hour

// NewAuthority returns an authority that can sign certificates only for the given hosts and their subdomains.
func NewAuthority(hosts []string) (*Authority, error) {
	a := &Authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "ambit, for one run"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(authorityTime),
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: hosts,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	a.certificate, err = x509.ParseCertificate(der)
	return a, err
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// PEM returns the authority's certificate, which the program must trust. The certificate is not secret.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func (a *Authority) leaf(host string) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.leafKey.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey}, nil
}

func (p *Policy) swaps(host string) (found []Swap) {
	for _, s := range p.Swaps {
		if agent.Covers(s.Hosts, host) {
			found = append(found, s)
		}
	}
	return found
}

// intercept terminates the program's TLS connection to a host. It forwards the requests in the connection to the
// host.
func (l *Link) intercept(ctx context.Context, conn net.Conn, from io.Reader) error {
	n := l.network
	leaf, err := n.policy.Authority.leaf(l.host)
	if err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(greetingTime))
	secure := tls.Server(&meteredConn{Conn: conn, from: from, link: l}, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"http/1.1"},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return err
	}
	conn.SetDeadline(time.Time{})
	transport := n.dialer.transport()
	transport.DisableCompression = true // compressed answers cannot be searched
	defer transport.CloseIdleConnections()
	swapped := &swapper{network: n, host: l.host, swaps: l.swaps, transport: transport}
	server := &http.Server{
		Handler: swapped, ReadHeaderTimeout: idleTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: log.New(io.Discard, "", 0), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	one := &oneConn{conn: secure, done: make(chan struct{})}
	server.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			one.Close()
		}
	}
	server.Serve(one)
	return nil
}

// meteredConn is a connection to a program. It reads from a separate reader, because the first bytes of the
// connection have already been read. It counts all bytes toward the byte limit of the sandbox, because a URL and
// headers can carry as much data as a body.
type meteredConn struct {
	net.Conn
	from io.Reader
	link *Link
}

func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.link.used.Store(time.Now().UnixNano())
	if !c.link.network.count(int64(n)) {
		return 0, errShare
	}
	return n, err
}

func (c *meteredConn) Write(b []byte) (int, error) {
	if !c.link.network.count(int64(len(b))) {
		return 0, errShare
	}
	return c.Conn.Write(b)
}

// oneConn is a listener that returns one existing connection. When the connection is closed, the listener is closed
// too.
type oneConn struct {
	conn     net.Conn
	once     sync.Once
	done     chan struct{}
	accepted bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// swapper is an HTTP handler that forwards requests to a host. It replaces placeholders in the requests with
// secrets.
type swapper struct {
	network   *Network
	host      string
	swaps     []Swap
	transport *http.Transport
}

// perHop lists the hop-by-hop headers. A proxy must not forward them.
var perHop = []string{
	"Connection", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Keep-Alive", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// rangeHeaders lists the headers that request a part of an answer.
var rangeHeaders = []string{"Range", "If-Range"}

func (s *swapper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, format string, args ...any) {
		refusal := call.Refuse(Stage, call.HostNotAllowed, format, args...)
		s.network.report(Decision{Host: s.host, Port: "443", Refusal: refusal})
		w.Header().Set("Connection", "close")
		http.Error(w, refusal.Error(), status)
	}
	// The server may also serve other hosts, and they must not receive the credential.
	if name, err := Host(strings.TrimSuffix(r.Host, ":443")); err != nil || name != s.host {
		refuse(http.StatusMisdirectedRequest,
			"a request on the TLS connection to %s is for a different host", diag.Quote(s.host))
		return
	}
	if r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" || r.URL.IsAbs() {
		refuse(http.StatusNotImplemented,
			"a request to a host that receives a credential must not use CONNECT, an upgrade or an absolute URL")
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI, out.URL.Scheme, out.URL.Host, out.Host = "", "https", s.host, s.host
	for _, name := range slices.Concat(connectionNames(r.Header), perHop, rangeHeaders) {
		out.Header.Del(name)
	}
	out.Header.Set("Accept-Encoding", "identity")
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	for name, values := range out.Header {
		for i, v := range values {
			if out.Header[name][i] = s.fill(v); strings.ContainsAny(out.Header[name][i], "\r\n\x00") {
				refuse(http.StatusBadGateway, "a credential with a line break or NUL character cannot be sent in a header")
				return
			}
		}
	}
	out.Body = onlyOnce{out.Body}
	resp, err := s.transport.RoundTrip(out)
	if err != nil {
		refusal := dialRefusal(s.host, err)
		s.network.report(Decision{
			Host: s.host, Port: "443", Refusal: refusal, Unreachable: refusal.Code == call.ServerUnavailable,
		})
		w.Header().Set("Connection", "close")
		http.Error(w, refusal.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		refuse(http.StatusBadGateway, "%s answered in an encoding that cannot be searched for secrets", diag.Quote(s.host))
		return
	}
	if resp.StatusCode == http.StatusPartialContent || resp.Header.Get("Content-Range") != "" {
		refuse(http.StatusBadGateway, "%s sent a partial answer, which cannot be searched for secrets", diag.Quote(s.host))
		return
	}
	s.forwardAnswer(w, resp)
}

// onlyOnce wraps a request body so that net/http cannot detect that the body is empty. If a reused connection is
// closed, net/http can repeat a request that has an empty body.
type onlyOnce struct{ io.ReadCloser }

// connectionNames returns the header names that the Connection header lists.
func connectionNames(h http.Header) (names []string) {
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// schemes lists the words that can precede a placeholder in a header value, in lower case.
var schemes = []string{"bearer", "basic", "token", "apikey", "bot"}

// fill replaces the placeholder in a header value. The value must be the placeholder alone, or a scheme and the
// placeholder. In Basic authentication, the user name or the password must be the placeholder. Other text beside the
// placeholder is not allowed, because a host may echo only a part of the header. With such text, the program could
// choose which part of the secret is echoed.
func (s *swapper) fill(value string) string {
	scheme, rest, ok := strings.Cut(value, " ")
	if !ok || !slices.Contains(schemes, strings.ToLower(scheme)) {
		return s.replace(value)
	}
	if plain, err := base64.StdEncoding.DecodeString(rest); err == nil && strings.EqualFold(scheme, "Basic") {
		user, password, colon := strings.Cut(string(plain), ":")
		text := s.replace(user)
		if colon {
			text += ":" + s.replace(password)
		}
		return scheme + " " + base64.StdEncoding.EncodeToString([]byte(text))
	}
	return scheme + " " + s.replace(rest)
}

// replace returns the secret if text is a placeholder, and text otherwise.
func (s *swapper) replace(text string) string {
	for _, swap := range s.swaps {
		if text == swap.Placeholder {
			return swap.Value()
		}
	}
	return text
}

// forwardAnswer sends an answer to the program. It replaces the secrets in the answer with hiddenText.
func (s *swapper) forwardAnswer(w http.ResponseWriter, resp *http.Response) {
	for _, name := range append(connectionNames(resp.Header), perHop...) {
		resp.Header.Del(name)
	}
	find := s.network.policy.Finder
	for name, values := range resp.Header {
		for _, v := range values {
			w.Header().Add(string(mask(find, []byte(name))), string(mask(find, []byte(v))))
		}
	}
	w.Header().Del("Content-Length") // masking may change the length
	body := &maskingReader{from: resp.Body, find: find}
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if flush.Flush() != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

const hiddenText = "[secret]"

func mask(find Finder, text []byte) []byte {
	found := find.Find(text)
	if len(found) == 0 {
		return text
	}
	return hide(nil, text, 0, len(text), found)
}

// hide appends text[start:end] to dst. It replaces each match with hiddenText. If a match begins before the offset
// start, an earlier call has already written hiddenText for this match.
func hide(dst, text []byte, start, end int, matches [][2]int) []byte {
	for _, m := range matches {
		if m[1] <= start || m[0] >= end {
			continue
		}
		if m[0] >= start {
			dst = append(append(dst, text[start:m[0]]...), hiddenText...)
		}
		start = min(m[1], end)
	}
	return append(dst, text[start:end]...)
}

// maskingReader masks the secrets in a stream. It holds back bytes that may be the beginning of a secret.
type maskingReader struct {
	from io.Reader
	find Finder

	buf   []byte
	held  []byte // unmasked bytes, preceded by some masked bytes
	past  int    // number of masked bytes in held; a match can begin in them
	ready []byte // already masked
	err   error
}

func (m *maskingReader) Read(p []byte) (int, error) {
	for len(m.ready) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		if m.buf == nil {
			m.buf = make([]byte, 32<<10)
		}
		n, err := m.from.Read(m.buf)
		m.held, m.err = append(m.held, m.buf[:n]...), err
		m.release()
	}
	n := copy(p, m.ready)
	m.ready = m.ready[n:]
	return n, nil
}

// release masks the held bytes and makes them ready to read. It holds back the bytes at the end that may be the
// beginning of a secret. The number of these bytes is less than the length of the longest match.
func (m *maskingReader) release() {
	longest := m.find.Longest()
	keep := min(longest-1, len(m.held)-m.past)
	if m.find.InLine() { // release every complete line, because a stream of events must not be delayed
		keep = min(keep, len(m.held)-1-bytes.LastIndexByte(m.held, '\n'))
	}
	if m.err != nil {
		keep = 0
	}
	found := m.find.Find(m.held)
	cut := max(len(m.held)-keep, m.past)
	for _, f := range found {
		if f[0] < cut && f[1] > cut {
			cut = f[1] // include the whole secret
		}
	}
	m.ready = hide(m.ready[:0], m.held, m.past, cut, found)
	m.past = min(cut, max(longest-1, 0))
	m.held = append(m.held[:0], m.held[cut-m.past:]...)
}
