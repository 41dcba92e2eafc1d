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

// Swap is a secret that a program names without having it. The program sends
// the placeholder; towards some hosts, and no others, the value goes in its
// place.
//
// That needs a look into TLS, so towards those hosts the proxy is the one that
// the program speaks TLS with, by a certificate of an [Authority] that only this
// program trusts; from there on it speaks TLS with the host itself. Requests to
// every other host pass sealed, with the placeholder in them.
//
// The value is put into the values of headers, and nowhere else: a path or a
// body is what hosts keep, show and pass on. Of an answer, whatever would show
// the value is turned back, so that a host that repeats what it was sent does
// not give the program what it must not have. Parts of an answer are neither asked
// for nor taken: each could hold a part of the value.
type Swap struct {
	Placeholder string
	// Value is called when it is needed, so that nothing prints it.
	Value func() string
	Hosts []string
}

// Finder finds secrets in what comes back from a host, however they are
// written there.
type Finder interface {
	// Find tells where they are: pairs of offsets, in order, without overlaps.
	Find(text []byte) [][2]int
	// Longest is the most bytes that one of them can have.
	Longest() int
	// InLine says that none of them goes on after the end of a line.
	InLine() bool
}

// Authority signs the certificates that a proxy shows to one program. Its key
// is in memory only.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	leafKey     *ecdsa.PrivateKey
	hosts       []string

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// A run is over long before its authority is.
const authorityTime = 366 * 24 * time.Hour

// NewAuthority makes an authority that can speak for some hosts, and names below
// them, and no others.
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

// PEM is the certificate, for the program to trust. It is no secret.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// leaf is a certificate for a host.
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

// swaps are those that hold towards a host.
func (p *Policy) swaps(host string) (held []Swap) {
	for _, s := range p.Swaps {
		if agent.Covers(s.Hosts, host) {
			held = append(held, s)
		}
	}
	return held
}

// intercept speaks TLS with the program in a host's name, and hands its requests
// on to the host.
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
	transport.DisableCompression = true // what is packed cannot be looked through
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

// counted is a connection of a program whose first bytes have been read already.
// All that passes counts: a URL and headers carry as much as a body.
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

// oneConn is a listener that has one connection, and ends with it.
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

// swapper hands requests on with the values in place of their placeholders.
type swapper struct {
	proxy     *Proxy
	host      string
	swaps     []Swap
	transport *http.Transport
}

// perHop are headers between two ends of one connection, and no further.
var perHop = []string{
	"Connection", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// partial are headers that ask for a part of an answer.
var partial = []string{"Range", "If-Range"}

func (s *swapper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, format string, args ...any) {
		refusal := call.Refuse(Stage, call.HostNotAllowed, format, args...)
		s.proxy.say(s.host, "443", refusal)
		w.Header().Set("Connection", "close")
		http.Error(w, refusal.Error(), status)
	}
	// Behind one name there may be others, which are not the audience.
	if name, err := Host(strings.TrimSuffix(r.Host, ":443")); err != nil || name != s.host {
		refuse(http.StatusMisdirectedRequest, "a request inside TLS with %s was for another host", diag.Quote(s.host))
		return
	}
	if r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" || r.URL.IsAbs() {
		refuse(http.StatusNotImplemented, "towards the host of a credential there are plain requests only")
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
		refuse(http.StatusBadGateway, "%s answered in a form that cannot be looked through", diag.Quote(s.host))
		return
	}
	if resp.StatusCode == http.StatusPartialContent || resp.Header.Get("Content-Range") != "" {
		refuse(http.StatusBadGateway, "%s answered with a part, which cannot be looked through", diag.Quote(s.host))
		return
	}
	s.hand(w, resp)
}

// onlyOnce is a body that net/http does not know for an empty one: a request without
// a body it would send again, unasked, where a reused connection has died.
type onlyOnce struct{ io.ReadCloser }

// listed are the headers that a Connection header names.
func listed(h http.Header) (names []string) {
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// fill puts values into a header. Basic authentication is a header that is
// written in another way.
func (s *swapper) fill(name, value string) string {
	scheme, rest, _ := strings.Cut(value, " ")
	if name == "Authorization" && strings.EqualFold(scheme, "Basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(s.replaced(string(plain))))
		}
	}
	return s.replaced(value)
}

// replaced goes over a text once, so that nothing that is put in is looked at.
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

// hand gives an answer to the program, without the values.
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
	w.Header().Del("Content-Length") // it may be another now
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

// hiddenText stands where a secret was.
const hiddenText = "[secret]"

// mask takes secrets out of a text.
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

// masked reads a text without its secrets, as it comes. What may be the
// beginning of a secret waits for what follows.
type masked struct {
	from io.Reader
	find Finder

	buf   []byte
	held  []byte // read, and not looked through to its end
	ready []byte // to be handed out
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

// release looks through what is held. A secret that ends in what comes later
// begins at most its own length before.
func (m *masked) release() {
	keep := min(m.find.Longest()-1, len(m.held))
	if m.find.InLine() { // so that events that come line by line need not wait
		keep = min(keep, len(m.held)-1-bytes.LastIndexByte(m.held, '\n'))
	}
	if m.err != nil {
		keep = 0
	}
	cut := len(m.held) - keep
	for _, f := range m.find.Find(m.held) {
		if f[0] < cut && f[1] > cut {
			cut = f[1] // whole, so that nothing of it stays behind
		}
	}
	m.ready = append(m.ready[:0], mask(m.find, m.held[:cut])...)
	m.held = append(m.held[:0], m.held[cut:]...)
}
