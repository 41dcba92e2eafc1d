package host

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/manifest"
)

// If a call never reached the bundle's code, its refusal is marked as unsent, so that the call does not count toward a
// limit.
func TestBundleUnsent(t *testing.T) {
	sandboxtest.Need(t)
	for _, tt := range []struct {
		name, member string
		value        any
		code         call.Code
	}{
		{"the server does not start", "mcp", map[string]any{"mode": "native", "command": "node", "args": []string{"nowhere.mjs"}}, call.ServerUnavailable},
		{"a credential is missing", "credential_slots", []any{map[string]any{"ref": "token", "label": "Token", "env": "TOKEN", "allowed_hosts": []string{"api.example.com"}}}, call.CredentialMissing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.FromSlash("../../../agents/examples/code-bundle-native"))); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "findagent.json")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var doc map[string]any
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			doc[tt.member] = tt.value
			if text, err = json.Marshal(doc); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := manifest.Load(file, manifest.Options{})
			if err != nil {
				t.Fatal(err)
			}
			a := begin(t, m, func(o *Options) {
				o.Credentials = &credential.Source{Environ: func(string) (string, bool) { return "", false }}
			})
			_, err = codeBinding{a}.Act(t.Context(), &m.Agent().Tools[0], &call.Call{Arguments: []byte(`{}`)})
			if r, ok := errors.AsType[*call.Refusal](err); !ok || r.Code != tt.code || !r.Unsent {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
