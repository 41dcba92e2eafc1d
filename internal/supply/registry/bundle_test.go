package registry

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A bundle is downloaded only from a public https address or from the registry itself. The same rule applies to the
// targets of redirects.
func TestDownload(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("ambit sent a request to another server on this machine")
	}))
	defer other.Close()
	mux := http.NewServeMux()
	own := httptest.NewServer(mux)
	defer own.Close()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("bytes")) })
	mux.Handle("/moved", http.RedirectHandler("/ok", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler(other.URL+"/ok", http.StatusFound))
	mux.Handle("/cloud", http.RedirectHandler("http://169.254.169.254/latest", http.StatusFound))
	mux.Handle("/file", http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.HandleFunc("/nowhere", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) })
	c := resolver(t, settled(t, own.URL)).Client
	for _, tt := range []struct{ name, host, url, want string }{
		{"from the registry", "mcp.example.com", own.URL + "/ok", ""},
		{"redirected within the registry", "mcp.example.com", own.URL + "/moved", ""},
		{"redirected to another server on this machine", "mcp.example.com", own.URL + "/away", "must use https"},
		{"redirected to the cloud metadata address", "mcp.example.com", own.URL + "/cloud", "must use https"},
		{"redirected to a file", "mcp.example.com", own.URL + "/file", "must use https"},
		{"redirected in a loop", "mcp.example.com", own.URL + "/round", "more than 5 times"},
		{"redirected without a Location", "mcp.example.com", own.URL + "/nowhere", "no valid Location"},
		{"not found", "mcp.example.com", own.URL + "/none", "status 404"},
		{"another server on this machine", "mcp.example.com", other.URL + "/ok", "must use https"},
		{"an IP address instead of a host name", "mcp.example.com", "https://127.0.0.1/ok", "is not a host name"},
		{"an address of a different registry", "registry.openmcp.org", own.URL + "/ok", "must use https"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			err := c.download(t.Context(), tt.host, tt.url, &b)
			switch {
			case tt.want == "" && (err != nil || b.String() != "bytes"):
				t.Errorf("got %q, %v; want \"bytes\"", b.String(), err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || b.Len() > 0):
				t.Errorf("got %q and the error %v, want the error %q", b.String(), err, tt.want)
			}
		})
	}
}
