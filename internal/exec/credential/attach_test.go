package credential

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

var slot = &agent.Slot{Ref: "token", Hosts: []string{"api.example.com"}}

func request(t testing.TB, address string) *http.Request {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Request{Method: "GET", URL: u, Header: http.Header{}}
}

func refusedWith(err error, code call.Code) bool {
	r, ok := errors.AsType[*call.Refusal](err)
	return ok && r.Code == code && r.Effect == call.NoEffect && !strings.Contains(fmt.Sprintf("%+v", r), canary)
}

// TestAudience checks that the secret is sent to the slot's host and its subdomains. Hosts with
// similar names must not get the secret.
func TestAudience(t *testing.T) {
	s := mustNew(t, Masked, canary)
	for _, address := range []string{
		"https://api.example.com/", "https://API.EXAMPLE.COM/x", "https://api.example.com./", "https://v1.api.example.com:8443/", "https://api.example.com?x",
	} {
		req := request(t, address)
		if err := Attach(egress.Switches{}, req, slot, s, nil, nil); err != nil || req.Header.Get("Authorization") != "Bearer "+canary {
			t.Errorf("%s: error %v, %d headers; want the secret to be sent", address, err, len(req.Header))
		}
	}
	for _, address := range []string{
		"https://api.example.com.evil.test/", "https://evil.test/api.example.com", "https://xapi.example.com/", "https://api-example.com/", "https://example.com/",
		"https://api.example.com@evil.test/", "https://user@api.example.com/", "https://user:pw@api.example.com/", "https://evil.test#api.example.com",
		"https://evil.test?api.example.com", "https://api.example.com../", "https://api.example.com.evil.test./", "https://.api.example.com/",
		"https://аpi.example.com/", "https://xn--pi-7kc.example.com/", "https://api。example.com/", "https://api.example.com%2eevil.test/", "https://api.example.com%00.evil.test/",
		"https://127.0.0.1/", "https://2130706433/", "https://0x7f000001/", "https://[::1]/", "https://[::ffff:127.0.0.1]/",
		"http://api.example.com/", "wss://api.example.com/", "//api.example.com/", "https:api.example.com", "https:///api.example.com", "/api.example.com",
	} {
		u, err := url.Parse(address)
		if err != nil {
			continue // no request can have an invalid URL
		}
		req := &http.Request{Method: "GET", URL: u, Header: http.Header{}}
		if err := Attach(egress.Switches{}, req, slot, s, nil, nil); !refusedWith(err, call.HostNotAllowed) || len(req.Header) != 0 {
			t.Errorf("%s: error %v, %d headers; want host_not_allowed", address, err, len(req.Header))
		}
	}
	req := request(t, "https://api.example.com/")
	req.Host = "evil.test"
	if err := Attach(egress.Switches{}, req, slot, s, nil, nil); !refusedWith(err, call.HostNotAllowed) {
		t.Errorf("error for another Host header = %v, want host_not_allowed", err)
	}
	for _, hosts := range [][]string{nil, {""}, {"."}, {"com."}} {
		if err := Attach(egress.Switches{}, request(t, "https://api.example.com/"), &agent.Slot{Ref: "token", Hosts: hosts}, s, nil, nil); !refusedWith(err, call.HostNotAllowed) {
			t.Errorf("error for a slot with the hosts %q = %v, want host_not_allowed", hosts, err)
		}
	}
}

// TestSealedAudience checks that hosts added to the slot later do not get the secret.
func TestSealedAudience(t *testing.T) {
	s := mustNew(t, Masked, canary, "api.example.com")
	wider := &agent.Slot{Ref: "token", Hosts: []string{"api.example.com", "evil.test"}}
	if err := Attach(egress.Switches{}, request(t, "https://api.example.com/"), wider, s, nil, nil); err != nil {
		t.Error(err)
	}
	req := request(t, "https://evil.test/")
	err := Attach(egress.Switches{}, req, wider, s, nil, nil)
	if r, _ := errors.AsType[*call.Refusal](err); !refusedWith(err, call.HostNotAllowed) || len(req.Header) != 0 || !strings.Contains(r.Hint, "set the credential again") {
		t.Errorf("error = %v, want host_not_allowed with a hint to set the credential again", err)
	}
}

func TestTemplates(t *testing.T) {
	plain := mustNew(t, Masked, canary)
	key := mustNew(t, JSON, "{\n \"id\": \"i1\",\n \"key\": \"k1\"\n}")
	// Placeholders inside arguments are not expanded.
	fill := func(name string) (string, error) { return "<" + name + " {credential}>", nil }
	for _, tt := range []struct {
		name   string
		secret Secret
		in     map[string]string
		want   http.Header
		code   call.Code
	}{
		{"own header", plain, map[string]string{"X-Api-Key": "{credential}"}, http.Header{"X-Api-Key": {canary}}, ""},
		{"with text", plain, map[string]string{"authorization": "token {credential}!"}, http.Header{"Authorization": {"token " + canary + "!"}}, ""},
		{"fields", key, map[string]string{"X-Id": "{credential.id}", "X-Key": "{credential.key}"}, http.Header{"X-Id": {"i1"}, "X-Key": {"k1"}}, ""},
		{"a whole JSON secret", key, nil, http.Header{}, call.CredentialMissing},
		{"a whole JSON secret in a header", key, map[string]string{"X-Key": "{credential}"}, http.Header{}, call.CredentialMissing},
		{"together with an argument", key, map[string]string{"X-Id": "{a}:{credential.id}"}, http.Header{"X-Id": {"<a {credential}>:i1"}}, ""},
		{"no such field", key, map[string]string{"X-Id": "{credential.secret}"}, http.Header{}, call.CredentialMissing},
		{"field of a secret that is not JSON", plain, map[string]string{"X-Id": "{credential.id}"}, http.Header{}, call.CredentialMissing},
		{"line break", mustNew(t, Masked, canary+"\r\nX-Evil: 1"), nil, http.Header{}, call.CredentialMissing},
		{"line break in a field", mustNew(t, JSON, `{"id":"a\nb"}`), map[string]string{"X-Id": "{credential.id}"}, http.Header{}, call.CredentialMissing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := request(t, "https://api.example.com/")
			err := Attach(egress.Switches{}, req, slot, tt.secret, tt.in, fill)
			if tt.code != "" && !refusedWith(err, tt.code) || tt.code == "" && err != nil {
				t.Error(err)
			}
			if len(req.Header) != len(tt.want) {
				t.Errorf("%d headers, want %d", len(req.Header), len(tt.want))
			}
			for name, want := range tt.want {
				if got := req.Header[name]; len(got) != 1 || got[0] != want[0] {
					t.Errorf("the header %s has the wrong value", name)
				}
			}
		})
	}
	failing := func(string) (string, error) { return "", errors.New("no such argument") }
	req := request(t, "https://api.example.com/")
	if err := Attach(egress.Switches{}, req, slot, key, map[string]string{"X-A": "{credential.id}", "X-B": "{credential.id}{a}"}, failing); err == nil || len(req.Header) != 0 {
		t.Errorf("error %v, %d headers; want an error and no headers", err, len(req.Header))
	}
	if Uses("{a} {credentials} {credentialx.y}") || !Uses("x {credential}") || !Uses("{credential.a}") {
		t.Error("Uses misreads a template")
	}
}

// FuzzAudience checks, for any address, that only the slot's host and its subdomains get the
// secret.
func FuzzAudience(f *testing.F) {
	for _, seed := range []string{"https://api.example.com/", "https://a.api.example.com", "https://api.example.com.evil.test", "https://x@api.example.com", "https://[::1]", "https:/\\api.example.com"} {
		f.Add(seed)
	}
	s := mustNew(f, Masked, canary)
	f.Fuzz(func(t *testing.T, address string) {
		u, err := url.Parse(address)
		if err != nil {
			return
		}
		req := &http.Request{Method: "GET", URL: u, Header: http.Header{}}
		err = Attach(egress.Switches{}, req, slot, s, nil, nil)
		host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
		mine := host == "api.example.com" || strings.HasSuffix(host, ".api.example.com")
		if err == nil && (!mine || u.Scheme != "https" || u.User != nil) {
			t.Errorf("%q got the secret", address)
		}
		if (err == nil) != (len(req.Header) == 1) {
			t.Errorf("%q: Attach returned the error %v, but the request has %d headers", address, err, len(req.Header))
		}
	})
}

// TestLoopbackAudience checks the development switch. With the switch, a credential can be sent
// without TLS, but only to the slot's loopback addresses.
func TestLoopbackAudience(t *testing.T) {
	s := mustNew(t, Masked, canary)
	here := &agent.Slot{Ref: "token", Hosts: []string{"127.0.0.1", "localhost", "::1", "api.example.com"}}
	dev := egress.Switches{LoopbackHTTP: true}
	for _, address := range []string{"http://127.0.0.1:8080/", "http://LOCALHOST/", "http://[::1]:8080/", "https://127.0.0.1/", "https://api.example.com/"} {
		req := request(t, address)
		if err := Attach(dev, req, here, s, nil, nil); err != nil || req.Header.Get("Authorization") != "Bearer "+canary {
			t.Errorf("%s: error %v, want the secret to be sent", address, err)
		}
		if req := request(t, address); address != "https://api.example.com/" {
			if err := Attach(egress.Switches{}, req, here, s, nil, nil); !refusedWith(err, call.HostNotAllowed) || len(req.Header) != 0 {
				t.Errorf("%s without the switch: error %v, want host_not_allowed", address, err)
			}
		}
	}
	for _, address := range []string{"http://api.example.com/", "http://127.0.0.2/", "http://10.0.0.1/", "http://127.0.0.1.evil.test/", "http://localhost.evil.test/", "http://me@127.0.0.1/", "ftp://127.0.0.1/"} {
		req := request(t, address)
		if err := Attach(dev, req, here, s, nil, nil); !refusedWith(err, call.HostNotAllowed) || len(req.Header) != 0 {
			t.Errorf("%s: error %v, want host_not_allowed", address, err)
		}
	}
}
