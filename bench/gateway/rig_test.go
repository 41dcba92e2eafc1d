package main

import (
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/home"
)

// TestGuardrails checks that a quota is set and that no run of the benchmark reaches it.
func TestGuardrails(t *testing.T) {
	dir, err := writeGuardrails(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	quotas, err := limit.ReadQuotas(home.At(dir))
	if err != nil {
		t.Fatal(err)
	}
	if quotas == nil || quotas.PerMinute < 1e9 || quotas.PerDay < 1e9 {
		t.Errorf("the quota is %+v, want at least 1e9 calls", quotas)
	}
}
