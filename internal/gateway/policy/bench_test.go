package policy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

func BenchmarkJudge(b *testing.B) {
	var permits strings.Builder
	for i := range 200 {
		fmt.Fprintf(&permits, "permit (principal, action, resource) when { context.arguments has path && context.arguments.path != \"/%d\" };\n", i)
	}
	for _, tt := range []struct{ name, rules, arguments, want string }{
		{"plain", gated, `{"path": "/data/notes/today.md"}`, "yes"},
		{"odd", gated, `{"path": "/data/%2e%2e/data\\today.md"}`, "policy_denied"},
		{"200permits", permits.String(), `{"path": "/data/notes/today.md"}`, "yes"},
	} {
		b.Run(tt.name, func(b *testing.B) {
			dir := b.TempDir()
			file := filepath.Join(dir, "policy.cedar")
			if err := os.WriteFile(file, []byte(tt.rules), 0o600); err != nil {
				b.Fatal(err)
			}
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(file, old, old); err != nil {
				b.Fatal(err)
			}
			live := Open(Options{File: file, Config: filepath.Join(dir, "config.toml")})
			a, t := &agent.Agent{Dialect: agent.GPARS}, &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
			c := &call.Call{Arguments: []byte(tt.arguments)}
			if got := first(live.Judge(context.Background(), a, "inside", t, c)); got != tt.want {
				b.Fatal(got)
			}
			b.ReportAllocs()
			for b.Loop() {
				live.Judge(context.Background(), a, "inside", t, c)
			}
		})
	}
}
