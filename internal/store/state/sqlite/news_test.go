package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// Each process counts the announcements of all processes. Open deletes a file that has become large, and the processes
// that have the store open see the change.
func TestAnnouncements(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	connect := func() *store { return testOpen(t, file, migrations.List()) }
	one, two := connect(), connect()
	seen := map[int64]bool{}
	look := func() {
		t.Helper()
		a, counted := one.Announced()
		b, ok := two.Announced()
		if !counted || !ok || a != b || seen[a] {
			t.Fatalf("the processes count %d and %d announcements (%t, %t) after %v", a, b, counted, ok, seen)
		}
		seen[a] = true
	}
	announce := func(s *store) {
		t.Helper()
		if err := s.Announce(); err != nil {
			t.Fatal(err)
		}
		look()
	}
	look()
	announce(one)
	announce(two)
	announce(one)
	if err := os.Truncate(one.news(), maxNews); err != nil {
		t.Fatal(err)
	}
	announce(two)
	clear(seen) // the numbers start again
	connect()
	look()
	announce(one)
}

// If the file of the announcements cannot be read or written, nothing counts as announced.
func TestAnnouncementsFail(t *testing.T) {
	s := testOpen(t, filepath.Join(t.TempDir(), "state.db"), migrations.List())
	if err := os.Symlink("state.db.news", s.news()); err != nil {
		t.Fatal(err)
	}
	if err := s.Announce(); err == nil {
		t.Error("an announcement that reached nobody succeeded")
	}
	if n, ok := s.Announced(); ok {
		t.Errorf("%d announcements were counted without the file", n)
	}
}
