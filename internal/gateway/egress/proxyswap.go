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

// Swap is a secret that a program has only a placeholder for. The program sends the
// placeholder, and in requests to some hosts the proxy replaces it by the value.
//
// For those hosts the proxy terminates TLS, with a certificate of an [Authority] that
// only this program trusts, and opens TLS to the host itself. Requests to every other
// host stay encrypted end to end, with the placeholder in them.
//
// The proxy inserts the value only into header values, because hosts store, show and
// forward paths and bodies. In answers it replaces the value by the placeholder, so that a
// host that echoes a request does not reveal the value to the program. Partial answers are
// neither requested nor accepted: each could contain a part of the value.
type Swap struct {
	Placeholder string
	// Value returns the secret. It is a function so that nothing prints the secret.
	Value func() string
	Hosts []string
}

// Finder finds secrets in the answers of a host, in any encoding.
type Finder interface {
	// Find returns their positions: pairs of offsets, in order, without overlaps.
	Find(text []byte) [][2]int
	// Longest is the maximal length of a secret in bytes.
	Longest() int
	// InLine reports whether every secret is within one line.
	InLine() bool
}

// Authority signs the certificates that a proxy presents to one program. Its key exists
// only in memory.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	leafKey     *ecdsa.PrivateKey
	hosts       []string

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// authorityTime is much longer than a run.
const authorityTime = 366 * 24 * time.Hour

// NewAuthority returns an authority whose certificates are valid only for some hosts and
// their subdomains.
func NewAuthority(hosts []string) (*Authority, error) {
	a := &Authority{hosts: slices.Clone(hosts), leaves: map[string]*tls.Certificate{}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "ambit, for one run"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(authorityTime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: a.hosts,
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

// PEM returns the certificate, for the program to trust. It is not secret.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// leaf returns a certificate for a host.
func (a *Authority) leaf(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil {
		return c, nil
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.leafKey.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey}
	a.leaves[host] = c
	return c, nil
}

// swaps returns the swaps for a host.
func (p *Policy) swaps(host string) (held []Swap) {
	for _, s := range p.Swaps {
		if agent.Covers(s.Hosts, host) {
			held = append(held, s)
		}
	}
	return held
}

// intercept terminates the program's TLS for a host and forwards its requests to the host.
func (p *Proxy) intercept(ctx context.Context, conn net.Conn, from io.Reader, host string, swaps []Swap) error {
	leaf, err := p.policy.Authority.leaf(host)
	if err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(proxyGreeting))
	secure := tls.Server(&counted{Conn: conn, from: from, proxy: p}, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"http/1.1"},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return err
	}
	conn.SetDeadline(time.Time{})
	transport := p.dialer.transport()
	transport.DisableCompression = true // compressed answers cannot be searched
	defer transport.CloseIdleConnections()
	swapped := &swapper{proxy: p, host: host, swaps: swaps, transport: transport}
	server := &http.Server{
		Handler: swapped, ReadHeaderTimeout: proxyIdle, IdleTimeout: proxyIdle, MaxHeaderBytes: maxHeaderBytes,
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

// counted is a connection of a program whose first bytes have been read already. All
// bytes count, because a URL and headers can carry as much data as a body.
type counted struct {
	net.Conn
	from  io.Reader
	proxy *Proxy
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	if c.proxy.bytes.Add(int64(n)) > proxyBytes {
		return 0, errShare
	}
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	if c.proxy.bytes.Add(int64(len(b))) > proxyBytes {
		return 0, errShare
	}
	return c.Conn.Write(b)
}

// oneConn is a listener for one connection. It closes with that connection.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
	took bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.took {
		l.took = true
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

// swapper forwards requests with the values in place of their placeholders.
type swapper struct {
	proxy     *Proxy
	host      string
	swaps     []Swap
	transport *http.Transport
}

// perHop are the hop-by-hop headers.
var perHop = []string{
	"Connection", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// partial are headers that request a part of an answer.
var partial = []string{"Range", "If-Range"}

func (s *swapper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, format string, args ...any) {
		refusal := call.Refuse(Stage, call.HostNotAllowed, format, args...)
		s.proxy.say(s.host, "443", refusal)
		w.Header().Set("Connection", "close")
		http.Error(w, refusal.Error(), status)
	}
	// The server of one name may serve others, which the credential is not for.
	if name, err := Host(strings.TrimSuffix(r.Host, ":443")); err != nil || name != s.host {
		refuse(http.StatusMisdirectedRequest, "a request inside TLS with %s was for another host", diag.Quote(s.host))
		return
	}
	if r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" || r.URL.IsAbs() {
		refuse(http.StatusNotImplemented, "the host of a credential accepts only plain requests")
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI, out.URL.Scheme, out.URL.Host, out.Host = "", "https", s.host, s.host
	for _, name := range slices.Concat(listed(r.Header), perHop, partial) {
		out.Header.Del(name)
	}
	out.Header.Set("Accept-Encoding", "identity")
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	for name, values := range out.Header {
		for i, v := range values {
			if out.Header[name][i] = s.fill(name, v); strings.ContainsAny(out.Header[name][i], "\r\n\x00") {
				refuse(http.StatusBadGateway, "a credential cannot be sent in a header: it has a line break or control character")
				return
			}
		}
	}
	out.Body = onlyOnce{out.Body}
	resp, err := s.transport.RoundTrip(out)
	if err != nil {
		refusal := dialled(s.host, err)
		s.proxy.say(s.host, "443", refusal)
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
	s.hand(w, resp)
}

// onlyOnce is an empty body that net/http does not recognise as empty: it would resend a
// request without a body if a reused connection has died.
type onlyOnce struct{ io.ReadCloser }

// listed returns the headers that a Connection header names.
func listed(h http.Header) (names []string) {
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// fill inserts values into a header. Basic authentication is decoded first.
func (s *swapper) fill(name, value string) string {
	scheme, rest, _ := strings.Cut(value, " ")
	if name == "Authorization" && strings.EqualFold(scheme, "Basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(s.replaced(string(plain))))
		}
	}
	return s.replaced(value)
}

// replaced replaces placeholders in one pass, so that inserted values are not searched.
func (s *swapper) replaced(text string) string {
	var pairs []string
	for _, swap := range s.swaps {
		if strings.Contains(text, swap.Placeholder) {
			pairs = append(pairs, swap.Placeholder, swap.Value())
		}
	}
	if pairs == nil {
		return text
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// hand sends an answer to the program, without the values.
func (s *swapper) hand(w http.ResponseWriter, resp *http.Response) {
	for _, name := range append(listed(resp.Header), perHop...) {
		resp.Header.Del(name)
	}
	find := s.proxy.policy.Finder
	for name, values := range resp.Header {
		for _, v := range values {
			w.Header().Add(string(mask(find, []byte(name))), string(mask(find, []byte(v))))
		}
	}
	w.Header().Del("Content-Length") // masking may change it
	body := &masked{from: resp.Body, find: find}
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

// hiddenText replaces a secret.
const hiddenText = "[secret]"

// mask removes secrets from a text.
func mask(find Finder, text []byte) []byte {
	found := find.Find(text)
	if len(found) == 0 {
		return text
	}
	var b bytes.Buffer
	at := 0
	for _, f := range found {
		b.Write(text[at:f[0]])
		b.WriteString(hiddenText)
		at = f[1]
	}
	b.Write(text[at:])
	return b.Bytes()
}

// masked is a reader that removes secrets from a stream. It holds back bytes that may be
// the beginning of a secret.
type masked struct {
	from io.Reader
	find Finder

	buf   []byte
	held  []byte // read but not searched completely
	ready []byte // searched
	err   error
}

func (m *masked) Read(p []byte) (int, error) {
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

// release searches the held bytes. A secret that ends in later bytes begins at most its
// own length before the end.
func (m *masked) release() {
	keep := min(m.find.Longest()-1, len(m.held))
	if m.find.InLine() { // so that events that arrive line by line are not delayed
		keep = min(keep, len(m.held)-1-bytes.LastIndexByte(m.held, '\n'))
	}
	if m.err != nil {
		keep = 0
	}
	cut := len(m.held) - keep
	for _, f := range m.find.Find(m.held) {
		if f[0] < cut && f[1] > cut {
			cut = f[1] // release the secret completely
		}
	}
	m.ready = append(m.ready[:0], mask(m.find, m.held[:cut])...)
	m.held = append(m.held[:0], m.held[cut:]...)
}
