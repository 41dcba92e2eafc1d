package egress

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// clientHello returns the first message of a TLS client for a host.
func clientHello(f *testing.F, host string) []byte {
	f.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		c := tls.Client(client, &tls.Config{ServerName: host})
		_ = c.Handshake() // no server answers
		client.Close()
	}()
	buf := make([]byte, 16<<10)
	n, err := server.Read(buf)
	if err != nil {
		f.Fatal(err)
	}
	return buf[:n]
}

// readHello returns the ClientHello unchanged, and only if it names the host.
func FuzzHello(f *testing.F) {
	for _, host := range []string{"api.example.com", "127.0.0.1", "a"} {
		f.Add(clientHello(f, host))
	}
	f.Add([]byte("CONNECT other:443 HTTP/1.1\r\n\r\n"))
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, sent []byte) {
		const host = "api.example.com"
		again, err := readHello(bytes.NewReader(sent), host)
		if err != nil {
			return
		}
		if got, err := io.ReadAll(again); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("got %x with error %v, want %x", got, err, sent)
		}
		if !bytes.Contains(bytes.ToLower(sent), []byte(host)) {
			t.Errorf("%x is accepted for %s, but does not name it", sent, host)
		}
	})
}

// A host that is accepted is a name in canonical form. It is not an IP address in any
// spelling, and contains no character that is special in a shell, a header or a URL.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"api.example.com", "EXAMPLE.com.", "127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::1]", "::ffff:127.0.0.1", "a..b", "a b", "a\r\nb", "xn--a", "1.2.3.4.5", "a@b", "example.0x1"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, err := Host(host)
		if err != nil {
			return
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Errorf("%q is an address", name)
		}
		if again, err := Host(name); err != nil || again != name {
			t.Errorf("Host(%q) = %q, %v, want no change", name, again, err)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || strings.HasSuffix(name, ".") {
			t.Errorf("%q was accepted", name)
		}
	})
}
