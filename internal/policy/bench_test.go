package policy

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/call"
)

func BenchmarkJudge(b *testing.B) {
	dir := b.TempDir()
	file := filepath.Join(dir, "policy.cedar")
	if err := os.WriteFile(file, []byte(gated), 0o600); err != nil {
		b.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		b.Fatal(err)
	}
	live := Open(Options{File: file, Config: filepath.Join(dir, "config.toml")})
	a, t := &agent.Agent{Dialect: agent.GPARS}, &agent.Tool{Name: "t", Binding: agent.OnServer{Alias: "s"}}
	c := &call.Call{Arguments: []byte(`{"path": "/data/notes/today.md"}`)}
	if got := first(live.Judge(context.Background(), a, "inside", t, c)); got != "yes" {
		b.Fatal(got)
	}
	b.ReportAllocs()
	for b.Loop() {
		live.Judge(context.Background(), a, "inside", t, c)
	}
}
