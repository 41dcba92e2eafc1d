package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

const (
	token   = "t0ken-of-the-slot-4711"
	standIn = "ambit-placeholder-0123456789abcdef"
)

func newFinder(t testing.TB, value string) Finder {
	t.Helper()
	values := []secret.Value{{Name: "SLOT", Secret: value}}
	known, err := secret.NewKnown(values)
	if err != nil {
		t.Fatal(err)
	}
	return secret.NewEcho(known, values)
}

// seen is a request that a server received.
type seen struct {
	host, uri, body string
	header          http.Header
}

// site starts a TLS server for api.example.com and other.example.com. The returned function
// returns the requests that the server has received.
func site(t *testing.T, answer http.HandlerFunc) (Switches, func() []seen) {
	t.Helper()
	var mu sync.Mutex
	var all []seen
	s, sw := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		all = append(all, seen{r.Host, r.RequestURI, string(body), r.Header.Clone()})
		mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	to := s.Listener.Addr().String()
	names := "api.example.com:443=" + to + ",other.example.com:443=" + to + ",deep.api.example.com:443=" + to
	sw2, err := Read(environ(map[string]string{EnvResolve: names, EnvCA: sw.CAFile()}), false, false)
	if err != nil {
		t.Fatal(err)
	}
	return sw2, func() []seen { mu.Lock(); defer mu.Unlock(); return all }
}

// swapping returns a policy that sends the token to api.example.com only, and switches with
// the authorities that a program trusts.
func swapping(t *testing.T, sw Switches) (Policy, Switches) {
	t.Helper()
	authority, err := NewAuthority([]string{"api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	trusted := sw
	trusted.roots = x509.NewCertPool()
	text, err := os.ReadFile(sw.CAFile())
	if err != nil || !trusted.roots.AppendCertsFromPEM(text) || !trusted.roots.AppendCertsFromPEM(authority.PEM()) {
		t.Fatal("no authority", err)
	}
	return Policy{
		Mode: ModeAllowlist, Hosts: []string{"api.example.com", "other.example.com"}, Authority: authority, Finder: newFinder(t, token),
		Swaps: []Swap{{Placeholder: standIn, Value: func() string { return token }, Hosts: []string{"api.example.com"}}},
	}, trusted
}

func send(t *testing.T, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func request(t *testing.T, address, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+standIn)
	req.Header.Set("X-Key", standIn)
	req.Header.Set("X-Padded", "k="+standIn+";")
	return req
}

// The proxy inserts the token only into headers of requests to the token's host, and only where the placeholder is the
// whole value or follows a scheme. It does not insert the token into paths or bodies, or into requests to other hosts.
func TestSwap(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	proxy, decisions := proxied(t, NewDialer(sw), policy)
	client := through(trusted, proxy)

	for _, host := range []string{"api.example.com", "other.example.com"} {
		resp, _ := send(t, client, request(t, "https://"+host+"/p/"+standIn+"?q="+standIn, "body "+standIn))
		if resp.StatusCode != 200 {
			t.Errorf("%s: got status %d, want 200", host, resp.StatusCode)
		}
		if d := <-decisions; d.Refusal != nil || d.Host != host {
			t.Errorf("got decision %+v, want %s allowed", d, host)
		}
	}
	all := sent()
	if len(all) != 2 {
		t.Fatalf("the server got %d requests, want 2", len(all))
	}
	for _, s := range all {
		want := token
		if s.host == "other.example.com" {
			want = standIn
		}
		if got := s.header.Get("Authorization"); got != "Bearer "+want {
			t.Errorf("%s got the wrong Authorization header; it contains the token: %t", s.host, strings.Contains(got, token))
		}
		if got := s.header.Get("X-Key"); got != want {
			t.Errorf("%s got the wrong X-Key header; it contains the token: %t", s.host, strings.Contains(got, token))
		}
		if got := s.header.Get("X-Padded"); got != "k="+standIn+";" {
			t.Errorf("%s got the token beside other text", s.host)
		}
		if strings.Contains(s.uri+s.body, token) || !strings.Contains(s.uri, standIn) || s.body != "body "+standIn {
			t.Errorf("%s: the path or body was changed", s.host)
		}
	}
}

func TestSwapInBasicAuthentication(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	proxy, _ := proxied(t, NewDialer(sw), policy)
	req := request(t, "https://api.example.com/", "")
	req.SetBasicAuth("me", standIn)
	send(t, through(trusted, proxy), req)
	if got, want := sent()[0].header.Get("Authorization"), "Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+token)); got != want {
		t.Error("the Authorization header does not contain the token")
	}
}

// The proxy refuses a request that names another host inside the TLS connection to the
// token's host. Otherwise another host on the same server would receive the token.
func TestSwapRefuses(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	for _, tt := range []struct {
		name    string
		change  func(*http.Request)
		status  int
		refused bool
	}{
		{"correct", func(*http.Request) {}, 200, false},
		{"another host", func(r *http.Request) { r.Host = "other.example.com" }, 421, true},
		{"a subdomain", func(r *http.Request) { r.Host = "deep.api.example.com" }, 421, true},
		{"another port", func(r *http.Request) { r.Host = "api.example.com:8443" }, 421, true},
		{"another protocol", func(r *http.Request) { r.Header.Set("Upgrade", "websocket"); r.Header.Set("Connection", "Upgrade") }, 501, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(sent())
			proxy, decisions := proxied(t, NewDialer(sw), policy)
			req := request(t, "https://api.example.com/", "")
			tt.change(req)
			resp, body := send(t, through(trusted, proxy), req)
			if resp.StatusCode != tt.status || strings.Contains(body, token) {
				t.Errorf("got status %d with body %s, want %d", resp.StatusCode, body, tt.status)
			}
			if (len(sent()) == before) != tt.refused {
				t.Errorf("the request was refused %t, want %t", !tt.refused, tt.refused)
			}
			<-decisions // the tunnel
			select {
			case d := <-decisions: // the proxy reports it before it answers
				if !tt.refused || d.Refusal == nil || d.Refusal.Code != call.HostNotAllowed || strings.Contains(d.Refusal.Error(), token) {
					t.Errorf("got decision %+v, want refused %t", d, tt.refused)
				}
			default:
				if tt.refused {
					t.Error("no decision was reported")
				}
			}
		})
	}
}

// Without an authority or a finder, the proxy refuses connections to the token's host.
func TestSwapNeedsAllParts(t *testing.T) {
	sw, sent := site(t, nil)
	for name, change := range map[string]func(*Policy){
		"authority": func(p *Policy) { p.Authority = nil },
		"finder":    func(p *Policy) { p.Finder = nil },
	} {
		policy, _ := swapping(t, sw)
		change(&policy)
		proxy, _ := proxied(t, NewDialer(sw), policy)
		if _, _, status := ask(t, proxy, "CONNECT api.example.com:443 HTTP/1.1"); status != http.StatusForbidden {
			t.Errorf("without %s: got status %d, want %d", name, status, http.StatusForbidden)
		}
	}
	if len(sent()) != 0 {
		t.Error("the server was reached")
	}
}

// The authority's certificates are valid only for the token's hosts. The proxy sends nothing
// to a host with an untrusted certificate.
func TestSwapAuthority(t *testing.T) {
	authority, err := NewAuthority([]string{"api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM())
	for host, good := range map[string]bool{"api.example.com": true, "deep.api.example.com": true, "example.com": false, "other.test": false} {
		leaf, err := authority.leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(leaf.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); (err == nil) != good {
			t.Errorf("%s: got error %v, want a valid certificate: %t", host, err, good)
		}
	}
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	untrusting := sw
	untrusting.roots = x509.NewCertPool()
	proxy, _ := proxied(t, NewDialer(untrusting), policy)
	resp, body := send(t, through(trusted, proxy), request(t, "https://api.example.com/", ""))
	if resp.StatusCode != http.StatusBadGateway || len(sent()) != 0 || strings.Contains(body, token) {
		t.Errorf("got status %d with body %s, and the server got %d requests", resp.StatusCode, body, len(sent()))
	}
}

// If a host echoes a request, the program does not see the token in the answer.
func TestSwapMasksEchoes(t *testing.T) {
	encoded := base64.RawStdEncoding.EncodeToString([]byte(token[:21]))
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"in the body", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "you sent %s and %s.", r.Header.Get("Authorization"), encoded)
		}, "you sent Bearer [secret] and [secret]."},
		{"in pieces", func(w http.ResponseWriter, r *http.Request) {
			for _, c := range []byte("x" + r.Header.Get("Authorization") + "y") {
				w.Write([]byte{c})
				http.NewResponseController(w).Flush()
			}
		}, "xBearer [secret]y"},
		{"across buffers", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, strings.Repeat("z", 32<<10-10)+token+strings.Repeat("z", 10))
		}, strings.Repeat("z", 32<<10-10) + "[secret]" + strings.Repeat("z", 10)},
		{"in a header", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			w.Header().Set("Location", "https://other.example.com/?t="+token)
			w.WriteHeader(302)
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sw, _ := site(t, tt.answer)
			policy, trusted := swapping(t, sw)
			proxy, _ := proxied(t, NewDialer(sw), policy)
			client := through(trusted, proxy)
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			resp, body := send(t, client, request(t, "https://api.example.com/", ""))
			if body != tt.want {
				t.Errorf("got a wrong body of %d bytes; it contains the token: %t", len(body), strings.Contains(body, token))
			}
			for name, values := range resp.Header {
				if strings.Contains(strings.Join(values, ""), token) {
					t.Errorf("the header %s contains the token", name)
				}
			}
		})
	}
}

// A host that cuts its echo off, changes its letter case or encodes it does not reveal six characters of the token.
func TestSwapMasksParts(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"plain":       func(s string) string { return s },
		"upper case":  strings.ToUpper,
		"base64":      func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"hex":         func(s string) string { return hex.EncodeToString([]byte(s)) },
		"percent":     func(s string) string { return "%" + strings.ReplaceAll(fmt.Sprintf("% X", s), " ", "%") },
		"JSON escape": func(s string) string { return `\u00` + strings.ReplaceAll(fmt.Sprintf("% x", s), " ", `\u00`) },
	} {
		t.Run(name, func(t *testing.T) {
			sw, _ := site(t, func(w http.ResponseWriter, r *http.Request) {
				at, _ := strconv.Atoi(r.URL.RawQuery)
				echo := "Pad: " + r.Header.Get("X-Pad") + "; X-Key: " + r.Header.Get("X-Key")
				io.WriteString(w, change(echo[:len(echo)-at]))
			})
			policy, trusted := swapping(t, sw)
			proxy, _ := proxied(t, NewDialer(sw), policy)
			client := through(trusted, proxy)
			for cut := range len(token) - 5 {
				req := request(t, "https://api.example.com/?"+strconv.Itoa(cut), "")
				req.Header.Set("X-Pad", strings.Repeat("p", cut))
				_, body := send(t, client, req)
				want := "Pad: " + strings.Repeat("p", cut) + "; X-Key: "
				if name == "base64" {
					want = want[:len(want)/3*3] // the characters that the token does not change
				}
				if want = change(want); !strings.HasPrefix(body, strings.TrimRight(want, "=")) || len(body) > len(want)+len(hiddenText)+8 || !strings.Contains(body, hiddenText) {
					t.Errorf("without its last %d characters, the token is visible in %q", cut, body)
				}
			}
		})
	}
}

func TestSwapRefusesWhatCannotBeLookedThrough(t *testing.T) {
	sw, _ := site(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, r.Header.Get("Authorization"))
		z.Close()
	})
	policy, trusted := swapping(t, sw)
	proxy, _ := proxied(t, NewDialer(sw), policy)
	resp, body := send(t, through(trusted, proxy), request(t, "https://api.example.com/", ""))
	if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, token) {
		t.Errorf("got status %d with body %q, want %d", resp.StatusCode, body, http.StatusBadGateway)
	}
}

// The proxy neither requests nor accepts a partial answer: a host that echoes requests could
// reveal the token in several parts.
func TestSwapTakesNoParts(t *testing.T) {
	sw, sent := site(t, func(w http.ResponseWriter, r *http.Request) {
		echo := strings.NewReader("echo: " + r.Header.Get("X-Key"))
		switch r.URL.Path {
		case "/206":
			w.WriteHeader(http.StatusPartialContent)
		case "/range":
			w.Header().Set("Content-Range", "bytes 0-19/100")
		default:
			http.ServeContent(w, r, "echo.txt", time.Time{}, echo)
			return
		}
		_, _ = io.CopyN(w, echo, 20)
	})
	policy, trusted := swapping(t, sw)
	proxy, _ := proxied(t, NewDialer(sw), policy)
	client := through(trusted, proxy)
	for _, part := range []string{"bytes=0-19", "bytes=20-", "bytes=0-9,10-19"} {
		req := request(t, "https://api.example.com/", "")
		req.Method = "GET"
		req.Header.Set("Range", part)
		if strings.Contains(part, ",") {
			req.Header.Set("If-Range", `"e"`)
		}
		if resp, body := send(t, client, req); resp.StatusCode != http.StatusOK || body != "echo: "+hiddenText {
			t.Errorf("%s: got status %d with body %q, want the complete answer", part, resp.StatusCode, body)
		}
	}
	for _, path := range []string{"/206", "/range"} {
		resp, body := send(t, client, request(t, "https://api.example.com"+path, ""))
		if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, token[:6]) || resp.Header.Get("Content-Range") != "" {
			t.Errorf("%s: got status %d with body %q, want %d", path, resp.StatusCode, body, http.StatusBadGateway)
		}
	}
	for _, s := range sent() {
		if s.header.Get("Range")+s.header.Get("If-Range") != "" {
			t.Error("the host got a request for a part")
		}
	}
}

// The proxy forwards each line of an event stream immediately.
func TestSwapStreams(t *testing.T) {
	more := make(chan struct{})
	sw, _ := site(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		<-more
		io.WriteString(w, "data: 2\n\n")
	})
	policy, trusted := swapping(t, sw)
	proxy, _ := proxied(t, NewDialer(sw), policy)
	resp, err := through(trusted, proxy).Do(request(t, "https://api.example.com/", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: 1\n\n" {
		t.Errorf("first event: got %q with error %v", first, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: 2\n\n" {
		t.Errorf("second event: got %q with error %v", rest, err)
	}
}

// One connection from the program serves several requests.
func TestSwapKeepsConnections(t *testing.T) {
	sw, sent := site(t, nil)
	policy, trusted := swapping(t, sw)
	proxy, _ := proxied(t, NewDialer(sw), policy)
	opened := 0
	client := &http.Client{Transport: &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy") },
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			opened++
			return net.Dial("unix", proxy)
		},
		TLSClientConfig: &tls.Config{RootCAs: trusted.roots},
	}}
	defer client.CloseIdleConnections()
	for range 3 {
		send(t, client, request(t, "https://api.example.com/", "x"))
	}
	if opened != 1 || len(sent()) != 3 {
		t.Errorf("got %d connections and %d requests, want 1 and 3", opened, len(sent()))
	}
}

// maskingReader produces the same text whatever the size of the reads, and passes errors on.
func FuzzMasked(f *testing.F) {
	f.Add("a"+token+"b", 1)
	f.Add(strings.Repeat(token[:10], 3)+token, 7)
	f.Add("\n"+token+"\n", 3)
	f.Add(strings.Repeat("a", 200)+strings.Repeat(token[:9], 40)+strings.Repeat("a", 200), 7)
	find := newFinder(f, token)
	f.Fuzz(func(t *testing.T, text string, _ int) {
		want := mask(find, []byte(text))
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text))} {
			got, err := io.ReadAll(&maskingReader{from: r, find: find})
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: got %q with error %v, want %q", name, got, err, want)
			}
		}
		broken := errors.New("broken")
		if _, err := io.ReadAll(&maskingReader{from: io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), find: find}); !errors.Is(err, broken) {
			t.Errorf("the error is lost: %v", err)
		}
	})
}
