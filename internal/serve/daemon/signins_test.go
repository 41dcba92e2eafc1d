package daemon

import (
	"testing"

	"github.com/ambit-run/ambit/internal/store/identity"
)

// The answer of a page, which contains a code, can be sent only to the machine of the browser.
func TestSignInRedirect(t *testing.T) {
	for address, ok := range map[string]bool{
		"http://127.0.0.1:8976/callback": true, "http://[::1]:8976/callback": true,
		"http://127.0.0.1/callback": false, "https://127.0.0.1:1/callback": false, "http://localhost:1/callback": false,
		"http://127.0.0.1.example.com:1/": false, "http://10.0.0.1:1/": false, "http://a@127.0.0.1:1/": false,
		"http://127.0.0.1:1/?to=https://example.com": false, "https://example.com/callback": false, "javascript:1": false, "": false,
	} {
		if got := isLoopback(address); got != ok {
			t.Errorf("isLoopback(%q) = %v", address, got)
		}
	}
	r := newRig(t, map[string]string{"alpha.json": matrix("alpha")}, nil)
	key := r.key(identity.KeySpec{Agents: []string{"alpha"}})
	body := `{"agent":"alpha","server":"x","redirect_uri":"https://example.com/callback"}`
	if a := r.ask(key, "POST", "/api/v1/signins", body); a.code() != "bad_request" {
		t.Errorf("a page on another machine: %d %s", a.status, a.body)
	}
	body = `{"agent":"beta","server":"x","redirect_uri":"http://127.0.0.1:1/callback"}`
	if a := r.ask(key, "POST", "/api/v1/signins", body); a.code() != "forbidden" {
		t.Errorf("an agent of others: %d %s", a.status, a.body)
	}
	if a := r.ask(key, "GET", "/api/v1/signins", ""); a.status != 200 {
		t.Errorf("the list: %d %s", a.status, a.body)
	}
}

// A key is sent only over https, or to this machine.
func TestKeyNeedsHTTPS(t *testing.T) {
	for address, ok := range map[string]bool{
		"https://ambit.example.com": true, "http://127.0.0.1:7411": true, "http://localhost:7411": true,
		"http://ambit.example.com": false, "http://127.0.0.1.example.com": false, "https://a@ambit.example.com": false,
		"http://10.0.0.1": false, "ambit.example.com": false, "": false,
	} {
		if _, err := NewClient(address, "key"); (err == nil) != ok {
			t.Errorf("NewClient(%q): %v", address, err)
		}
	}
}
