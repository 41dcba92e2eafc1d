package main

import (
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/limit"
	"github.com/ambit-run/ambit/internal/store/home"
)

// Every rail means the quota too, and one that no run of the benchmark meets.
func TestRails(t *testing.T) {
	dir, err := writeRails(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	quotas, err := limit.ReadQuotas(home.At(dir))
	if err != nil {
		t.Fatal(err)
	}
	if quotas == nil || quotas.PerMinute < 1e9 || quotas.PerDay < 1e9 {
		t.Errorf("the quota is %+v", quotas)
	}
}
