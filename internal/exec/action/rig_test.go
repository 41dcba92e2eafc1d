package action

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// canary is the value of the token. Only hosts in its audience may receive it.
const canary = "canary-4c1fe0b7a925"

// authority signs certificates of test servers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, file}
}

// server is a TLS server for several host names. It records all requests.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func (a *authority) server(t testing.TB, h http.HandlerFunc, names ...string) *server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, fmt.Sprintf("%s %s %s %v %s", r.Method, r.Host, r.RequestURI, r.Header, body))
		s.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h(w, r)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

// switches returns egress switches that redirect connections for name:port to test servers.
func (a *authority) switches(t testing.TB, to map[string]*server) egress.Switches {
	t.Helper()
	var pairs []string
	for name, s := range to {
		pairs = append(pairs, name+"="+s.Listener.Addr().String())
	}
	env := map[string]string{egress.EnvResolve: strings.Join(pairs, ","), egress.EnvCA: a.file}
	sw, err := egress.Read(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, false, false)
	if err != nil {
		t.Fatal(err)
	}
	return sw
}

// token returns a source in which the environment variable ANALYTICS_TOKEN has the given value.
func token(value string) *credential.Source {
	return &credential.Source{Environ: func(name string) (string, bool) { return value, value != "" && name == "ANALYTICS_TOKEN" }}
}

// rig is an agent with one HTTP tool, and the server that the tool calls.
type rig struct {
	*server
	agent *agent.Agent
	o     Options
}

func newRig(t testing.TB, h agent.HTTP, answer http.HandlerFunc) *rig {
	t.Helper()
	ca := newAuthority(t)
	s := ca.server(t, answer, "api.example.com")
	if h.URL == "" {
		h.URL = "https://api.example.com/v1"
	}
	h.Host = "api.example.com"
	if h.Method == "" {
		h.Method = "GET"
	}
	client := egress.New(ca.switches(t, map[string]*server{"api.example.com:443": s, "api.example.com:8443": s}))
	t.Cleanup(client.Close)
	a := &agent.Agent{
		ID: "reporter", Name: "Reporter", Tools: []agent.Tool{{Name: "tool", Binding: h}},
		Slots: []agent.Slot{{Ref: "token", Label: "Token", Env: "ANALYTICS_TOKEN", Type: "secret", Required: true, Hosts: []string{"api.example.com"}}},
	}
	return &rig{s, a, Options{Egress: client, Credentials: token(canary)}}
}

func (r *rig) call(t testing.TB, arguments string) (call.Result, error) {
	t.Helper()
	return New(r.agent, r.o).Act(t.Context(), &r.agent.Tools[0], &call.Call{ID: "id-1", Tool: "tool", Arguments: jsontext.Value(arguments)})
}

// shown is the decoded result of a tool.
type shown struct {
	Content []struct {
		Type, Text, Data, MIMEType string
		Resource                   struct{ URI, MIMEType, Blob string }
	}
	StructuredContent json.RawMessage
	IsError           bool
	Meta              map[string]any `json:"_meta"`
}

func read(t testing.TB, r call.Result, err error) shown {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var s shown
	if err := json.Unmarshal(r.Raw, &s); err != nil || s.IsError != r.IsError || !r.Raw.IsValid() || len(s.Content) != 1 || strings.ContainsAny(string(r.Raw), "\n\r") {
		t.Fatalf("invalid result %s: %v", r.Raw, err)
	}
	return s
}

func wantCode(t testing.TB, err error, code call.Code, effect call.Effect) *call.Refusal {
	t.Helper()
	r, ok := errors.AsType[*call.Refusal](err)
	if !ok || r.Code != code || r.Effect != effect {
		t.Fatalf("got %v, want %s with effect %s", err, code, effect)
	}
	if strings.Contains(fmt.Sprintf("%+v", r), canary) {
		t.Fatal("a refusal contains the token")
	}
	return r
}

// callers is a function that implements Caller.
type callers func(ctx context.Context, name string, c *call.Call) (call.Result, error)

func (f callers) CallAgent(ctx context.Context, name string, c *call.Call) (call.Result, error) {
	return f(ctx, name, c)
}
