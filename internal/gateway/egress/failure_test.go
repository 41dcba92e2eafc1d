package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// Switches.Host returns the host of a URL, or refuses it. LoopbackHTTP additionally allows
// this machine.
func TestSwitchesHost(t *testing.T) {
	dev := Switches{LoopbackHTTP: true}
	for _, tt := range []struct {
		address, plain, dev string
	}{
		{"https://API.example.com./x", "api.example.com", "api.example.com"},
		{"http://api.example.com/", "", ""},
		{"http://localhost:1/", "", "localhost"},
		{"http://LOCALHOST/", "", "localhost"},
		{"http://127.0.0.1/", "", "127.0.0.1"},
		{"https://[::1]/", "", "::1"},
		{"http://10.0.0.1/", "", ""},
		{"https://10.0.0.1/", "", ""},
		{"http://localhost.evil.test/", "", ""},
		{"ftp://localhost/", "", ""},
	} {
		u, err := url.Parse(tt.address)
		if err != nil {
			t.Fatal(err)
		}
		for want, s := range map[*string]Switches{&tt.plain: {}, &tt.dev: dev} {
			got, err := s.Host(u)
			if got != *want || (err == nil) != (*want != "") {
				t.Errorf("%s with LoopbackHTTP %t: got %q and error %v, want %q", tt.address, s.LoopbackHTTP, got, err, *want)
			}
		}
	}
	if said := dev.Announce(); !strings.Contains(said, "--dev") || !strings.Contains(said, "DEVELOPMENT SWITCHES ARE ON") {
		t.Errorf("the warning is %q", said)
	}
	if c := New(dev); !c.Switches().LoopbackHTTP {
		t.Error("Client.Switches does not return LoopbackHTTP")
	}
	var none *Client
	if none.Switches().On() || (Switches{}).roots != nil {
		t.Error("a nil client or the zero value has a switch on")
	}
}

// With LoopbackHTTP, "localhost" is refused if it resolves to another machine.
func TestLoopbackNameThatLeadsElsewhere(t *testing.T) {
	d := NewDialer(Switches{LoopbackHTTP: true})
	d.Resolver = &answers{lists: [][]netip.Addr{addrs("93.184.216.34")}}
	d.open = func(context.Context, netip.AddrPort, control) (net.Conn, error) {
		t.Error("the address of another machine is dialled")
		return nil, errors.New("no")
	}
	_, err := d.DialContext(t.Context(), "tcp", "localhost:80")
	wantCode(t, err, call.AddressBlocked, call.NoEffect)
	if _, err := d.DialContext(t.Context(), "tcp", "localhost"); err == nil {
		t.Error("an address without a port is dialled")
	}
}

// If the caller cancels while the dialer tries the addresses, the dialer tries no further address.
func TestDialGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d, tries := NewDialer(Switches{}), 0
	d.Resolver = &answers{lists: [][]netip.Addr{addrs("93.184.216.34", "93.184.216.35")}}
	d.open = func(context.Context, netip.AddrPort, control) (net.Conn, error) {
		tries++
		cancel()
		return nil, context.Canceled
	}
	if _, err := d.DialContext(ctx, "tcp", "example.com:443"); !errors.Is(err, context.Canceled) || tries != 1 {
		t.Errorf("the dialer tried %d addresses and returned %v, want one address and %v", tries, err, context.Canceled)
	}
}

// The refusal of a bad certificate uses ambit's own words and does not quote the
// certificate.
func TestBadCertificates(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, bad := range map[string]error{
		"has expired":          x509.CertificateInvalidError{Reason: x509.Expired, Detail: "canary"},
		"certificate is not":   x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign, Detail: "canary"},
		"is for another name":  x509.HostnameError{Certificate: &x509.Certificate{}, Host: "canary"},
		"is not valid":         &tls.CertificateVerificationError{Err: errors.New("canary")},
		"could not be reached": errors.New("canary"),
	} {
		r := failure(req, call.Refuse, "could not be reached", bad)
		if r.Code != call.ServerUnavailable || !strings.Contains(r.Message, want) || strings.Contains(r.Error(), "canary") {
			t.Errorf("%v: got the refusal %v; want it to contain %q and not to quote the certificate", bad, r, want)
		}
	}
}

func TestSame(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"https://a.example/", "https://A.example.:443/x", true},
		{"http://a.example/", "http://a.example:80", true},
		{"https://a.example/", "https://a.example:8443/", false},
		{"https://a.example/", "http://a.example/", false},
		{"https://a.example/", "https://b.example/", false},
	} {
		a, errA := url.Parse(tt.a)
		b, errB := url.Parse(tt.b)
		if errA != nil || errB != nil || Same(a, b) != tt.same {
			t.Errorf("Same(%s, %s) is not %t (errors %v, %v)", tt.a, tt.b, tt.same, errA, errB)
		}
	}
}
