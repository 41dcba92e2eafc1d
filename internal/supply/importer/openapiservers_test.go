package importer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/supply/importer"
	"github.com/ambit-run/ambit/manifest"
)

// An address that is not public keeps its path, and the note names its host.
func TestAddressThatIsNotPublic(t *testing.T) {
	for _, tt := range []struct{ name, servers, url, note string }{
		{"loopback", `[{"url": "http://localhost:9000/v1/"}]`, "https://api.example.com/v1/orders", "localhost:9000 is not a public address"},
		{"relative", `[{"url": "/v2"}]`, "https://api.example.com/v2/orders", "the description has no public address"},
		{
			"variables", `[{"url": "http://{host}/{base}", "variables": {"host": {"default": "shop.local"}, "base": {"default": "v3"}}}]`,
			"https://api.example.com/v3/orders", "shop.local is not a public address",
		},
		{"a user", `[{"url": "http://me:pass-9f2c61@localhost/v4"}]`, "https://api.example.com/v4/orders", "localhost is not a public address"},
		{"none", `[]`, "https://api.example.com/orders", "the description has no public address"},
		{
			"a public address comes first", `[{"url": "http://localhost/v1"}, {"url": "https://shop.example.org/v5"}]`,
			"https://shop.example.org/v5/orders", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "api.json")
			text := `{"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": ` + tt.servers +
				`, "paths": {"/orders": {"get": {"operationId": "listOrders"}}}}`
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := importer.Import(file, filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(r.Text), `"url": "`+tt.url+`"`) || strings.Contains(string(r.Text), "pass-9f2c61") {
				t.Errorf("the manifest is\n%s", r.Text)
			}
			var notes strings.Builder
			for _, n := range r.Notes {
				notes.WriteString(n.What + ": " + n.Detail + "\n")
			}
			if !strings.Contains(notes.String(), tt.note) || strings.Contains(notes.String(), "pass-9f2c61") {
				t.Errorf("the notes are\n%s", notes.String())
			}
		})
	}
}

// With LoopbackHTTP, an address on this machine is kept.
func TestAddressOnThisMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "api.json")
	text := `{"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "http://localhost:9000/v1/"}],
		"components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}, "security": [{"key": []}],
		"paths": {"/orders": {"get": {"operationId": "listOrders"}}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := importer.Options{LoopbackHTTP: true}.Import(file, filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"url": "http://localhost:9000/v1/orders"`, `"localhost"`} {
		if !strings.Contains(string(r.Text), want) {
			t.Errorf("%s is missing in\n%s", want, r.Text)
		}
	}
}

// A person must approve each call of an imported operation that deletes.
func TestDeletingOperationsAsk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "api.json")
	text := `{"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "https://shop.example.org"}],
		"paths": {"/orders/{id}": {"delete": {"operationId": "deleteOrder"}, "get": {"operationId": "getOrder"}}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := importer.Import(file, filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse("api.json", r.Text, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Agent().Tools {
		tool := &m.Agent().Tools[i]
		if asks := tool.Policy.HumanApproval; asks != (tool.Name == "deleteOrder") {
			t.Errorf("%s needs approval: %t", tool.Name, asks)
		}
	}
}
