package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// Each process sees the announcements of all processes. If the file is deleted, they are unknown until the next one.
func TestAnnouncements(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	connect := func() *store { return testOpen(t, file, migrations.List()) }
	one, two := connect(), connect()
	seen := map[state.News]bool{}
	look := func() {
		t.Helper()
		a, known := one.Announced()
		b, ok := two.Announced()
		if !known || !ok || a != b || seen[a] {
			t.Fatalf("the processes see %v and %v (%t, %t) after %v", a, b, known, ok, seen)
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
	if err := os.Remove(one.news()); err != nil {
		t.Fatal(err)
	}
	if n, ok := two.Announced(); ok {
		t.Errorf("without the file, the announcements are %v", n)
	}
	clear(seen) // a new file can have the time and the size of the old one
	connect()
	look()
	announce(two)
}

// If the file of the announcements cannot be read or written, nothing counts as announced.
func TestAnnouncementsFail(t *testing.T) {
	s := testOpen(t, filepath.Join(t.TempDir(), "state.db"), migrations.List())
	if err := os.Remove(s.news()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("state.db.news", s.news()); err != nil {
		t.Fatal(err)
	}
	if err := s.Announce(); err == nil {
		t.Error("an announcement succeeded, but no process can see it")
	}
	if n, ok := s.Announced(); ok {
		t.Errorf("without the file, the announcements are %v", n)
	}
}
