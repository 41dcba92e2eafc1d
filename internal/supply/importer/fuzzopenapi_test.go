package importer

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/manifest"
)

// FuzzOpenAPI checks that any OpenAPI description results in a valid manifest with only http tools.
// The tools must send requests and credentials only to one host, over https.
func FuzzOpenAPI(f *testing.F) {
	text, err := os.ReadFile("testdata/ok/petstore.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, text := range []string{
		`{"openapi":"3.1.0","info":{"title":"A"},"servers":[{"url":"https://api.example.com/v1"}],"paths":{"/x/{id}":{"get":{"operationId":"get","parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}]},"delete":{"operationId":"drop"}}}}`,
		`{"openapi":"3.0.0","info":{},"servers":[{"url":"http://127.0.0.1/"},{"url":"https://u:p@evil.example/"},{"url":"https://10.0.0.1"}],"paths":{"/":{"get":{}}}}`,
		`{"openapi":"3.0.0","info":{"title":"A"},"servers":[{"url":"https://{host}.example.com","variables":{"host":{"default":"api"}}}],"paths":{"/../x":{"get":{"operationId":"a b"}},"/a?b={c}":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}}}}},"components":{"schemas":{"A":{"properties":{"a":{"$ref":"#/components/schemas/A"}}}}}}`,
		`{"openapi":"3.0.0","info":{"title":"A"},"servers":[{"url":"https://api.example.com"}],"security":[{"k":[]}],"paths":{"/a":{"get":{"parameters":[{"name":"X\r\nEvil","in":"header"}]}}},"components":{"securitySchemes":{"k":{"type":"apiKey","in":"header","name":"X-Key\r\nY"}}}}`,
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "x.json")
		os.Remove(path) // overwriting the file instead could wait for the disk
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Import(path, ".")
		if err != nil || r.Source != "an OpenAPI description" {
			return
		}
		m, _ := manifest.Parse("findagent.json", r.Text, manifest.Options{})
		if !m.Valid() {
			t.Fatalf("the manifest is not valid: %v", m.Diagnostics)
		}
		if !json.Valid(r.Text) {
			t.Fatal("the manifest is not JSON")
		}
		hosts := map[string]bool{}
		for _, tool := range m.Agent().Tools {
			h, ok := tool.Binding.(agent.HTTP)
			if !ok {
				t.Errorf("the tool %s has a binding of type %T, want an http tool", tool.Name, tool.Binding)
				continue
			}
			u, err := url.Parse(h.URL)
			if err != nil || u.Scheme != "https" || u.User != nil || u.Hostname() == "" {
				t.Errorf("the tool %s sends requests to %q, which is not a plain https address", tool.Name, h.URL)
				continue
			}
			hosts[u.Hostname()] = true
			if h.AuthRef != "" {
				if slot := m.Agent().Slot(h.AuthRef); slot == nil || !slot.Covers(u.Hostname()) {
					t.Errorf("the tool %s sends the credential %s to %s, which is not a host of its slot", tool.Name, h.AuthRef, u.Hostname())
				}
			}
		}
		if len(hosts) > 1 {
			t.Errorf("the tools send requests to several hosts: %v", hosts)
		}
	})
}
