package egress

import (
	"testing"
)

// FuzzSwitches: in production, any value of the variable is refused. In development, every
// accepted entry maps a canonical host name to a valid address and port.
func FuzzSwitches(f *testing.F) {
	for _, text := range []string{
		"api.example.com:443=127.0.0.1:9443", "a.example.com:443=[::1]:1,b.example.com:1=10.0.0.1:2", "127.0.0.1:443=127.0.0.1:1", "x:443=evil:1", ",,", "=", "a.example.com:443=127.0.0.1:0", "0x7f.1:443=127.0.0.1:1", "A.Example.COM.:443=127.0.0.1:1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		environ := func(name string) (string, bool) {
			if name == EnvResolve {
				return text, text != ""
			}
			return "", false
		}
		if s, err := Read(environ, false, true); s.On() || err == nil && text != "" {
			t.Errorf("%q is on in production: %v", text, err)
		}
		s, err := Read(environ, false, false)
		if err != nil {
			if s.On() {
				t.Errorf("%q is refused, but a switch is on", text)
			}
			return
		}
		for name, to := range s.names {
			host, _, ok := cutLast(name)
			if clean, err := Host(host); !ok || err != nil || clean != host || !to.IsValid() || to.Port() == 0 {
				t.Errorf("the entry %q = %v was accepted", name, to)
			}
		}
		if s.On() != (len(s.names) > 0) || s.On() && s.Announce() == "" {
			t.Errorf("%q is on, but Announce returns no warning", text)
		}
	})
}

func cutLast(s string) (before, after string, ok bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == ':' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
