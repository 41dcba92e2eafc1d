package egress

import (
	"strings"
	"testing"
)

func TestAllowedDestination(t *testing.T) {
	for _, tt := range []struct {
		text    string
		private bool
		want    string // canonical spelling, or a part of the error after "!"
	}{
		{"API.Example.com.", false, "api.example.com"},
		{"api.example.com:8443", false, "api.example.com:8443"},
		{"1.1.1.1", false, "1.1.1.1"},
		{"[2606:4700::1111]:443", false, "[2606:4700::1111]:443"},
		{"2606:4700:0::1111", false, "2606:4700::1111"},
		{"db.internal:5432", true, "db.internal:5432"},
		{"127.0.0.1:5432", true, "127.0.0.1:5432"},
		{"[::1]:5432", true, "[::1]:5432"},
		{"db.internal", true, "!needs a port; write db.internal:PORT"},
		{"10.0.0.5", false, "!is not a public address"},
		{"10.0.0.5:80", false, "!add --private"},
		{"localhost:80", false, "!is not a public address"},
		{"::ffff:127.0.0.1", false, "!is not a public address"},
		{"169.254.169.254:80", true, "!metadata"},
		{"[::ffff:169.254.169.254]:80", true, "!metadata"},
		{"[fd00:ec2::254]:80", true, "!metadata"},
		{"[fe80::1%eth0]:80", true, "!not a host"},
		{"100.100.100.200:80", true, "!metadata"},
		{"[::ffff:100.100.100.200]:80", true, "!metadata"},
		{"168.63.129.16", false, "!metadata"},
		{"https://api.example.com", false, "!is not a host"},
		{"api.example.com:0", false, "!is not a host"},
		{"api.example.com:65536", false, "!is not a host"},
		{"api.example.com:http", false, "!is not a host"},
		{"2130706433:80", true, "!is not a host"},
		{"0x7f.1", false, "!is not a host"},
		{"", false, "!is not a host"},
	} {
		got, err := ParseDestination(tt.text, tt.private)
		if part, fails := strings.CutPrefix(tt.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q, %v; want an error with %q", tt.text, got, err, part)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.text, got, err, tt.want)
		}
	}
}
