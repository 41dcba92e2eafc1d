//go:build linux && prove

package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/state/statetest"
)

// A lock that is kept for a minute is waited for: the call is neither refused nor
// made before, and then made once.
func TestStoreLockedForAMinute(t *testing.T) {
	h := newHouse(t, "-", 0)
	d := h.serve()
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	release := h.hold()
	defer release()
	got := make(chan outcome, 1)
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	select {
	case o := <-got:
		t.Fatalf("it did not wait: %+v", o)
	case <-time.After(time.Minute):
	}
	if n := h.done(); n != 1 {
		t.Errorf("%d effects while nothing could be written down", n)
	}
	release()
	if o := <-got; o.err != nil || o.a.status != 200 || h.done() != 2 {
		t.Errorf("when the lock was free: %+v, and %d effects", o, h.done())
	}
	h.whole()
}

// The machine of the database is gone, and nobody said so. Calls are refused when
// the store's patience is over, without effect; when it is back they go on.
func TestHalfOpenPostgres(t *testing.T) {
	cluster := statetest.NewCluster(t)
	w := newWire(t, cluster.Socket())
	store := "postgres://ambit@" + w.address() + "/postgres?sslmode=disable"
	h := newHouse(t, "-", 0)
	d := h.serve("--store", store)
	if a, err := d.pay(); err != nil || a.status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	w.broken.Store(true)
	got := make(chan outcome, 1)
	begun := time.Now()
	go func() { a, err := d.pay(); got <- outcome{a, err} }()
	select {
	case o := <-got:
		t.Logf("after %v: %+v", time.Since(begun), o)
		if o.err != nil || o.a.status == 200 || o.a.Error.Message == "" || !strings.Contains(o.a.text, "store") {
			t.Errorf("the caller is told %+v", o)
		}
	case <-time.After(2 * time.Minute):
		t.Error("nobody tells the caller anything for two minutes")
	}
	if n := h.done(); n != 1 {
		t.Errorf("%d effects while nothing could be written down", n)
	}
	w.broken.Store(false)
	h.until("calls work again", func() bool { a, err := d.pay(); return err == nil && a.status == 200 })
	if n := h.done(); n != 2 {
		t.Errorf("%d effects", n)
	}
	h.whole("--store", cluster.Place())
}
