package authority

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// A home with a damaged file accepts no register until a person adopts it. Then other machines accept it too.
func TestDamagedMemory(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		db, h := connect(), home.At(t.TempDir())
		open := func() *Register { return New(Track(db, MemoryOf(h, "postgres://db/ambit")), testKeys("root")) }
		running := open()
		put(t, running, row("a"), row("b"))
		for _, text := range []string{"", "null", "[]", `{"db:/ambit": {"name": "x", "ver`} {
			if err := os.WriteFile(h.Seen(), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := open()
			err := r.DB.Write(t.Context(), func(tx state.Tx) error { return r.Put(tx, row("c")) })
			if damaged, ok := errors.AsType[*DamagedError](err); !ok || damaged.File != h.Seen() {
				t.Errorf("with the damaged file %q, Put returned %v, want a DamagedError", text, err)
			}
			for name, of := range map[string]*Register{"new": r, "running": running} {
				if ids, err := held(t, of); err == nil {
					t.Errorf("with the damaged file %q, a %s process sees %v", text, name, ids)
				}
			}
		}
		r := open()
		err := r.DB.Write(t.Context(), func(tx state.Tx) error {
			_, err := r.Adopt(tx, []Row{row("a"), row("b"), row("c")})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, of := range map[string]*Register{"new": open(), "running": running} {
			if ids, err := held(t, of); err != nil || !slices.Equal(ids, []string{"a", "b"}) {
				t.Errorf("after the register was adopted, a %s process sees %v, %v", name, ids, err)
			}
		}
		if text, err := os.ReadFile(h.Seen() + ".damaged"); err != nil || len(text) == 0 {
			t.Errorf("the copy of the damaged file contains %q (error %v), want its old content", text, err)
		}
	})
}

// A process reports that its home cannot remember a register.
func TestUnwritableMemory(t *testing.T) {
	r := New(Track(statetest.Open(t), MemoryOf(home.At(filepath.Join(t.TempDir(), "none")), "postgres://db/ambit")), testKeys("root"))
	var warnings []error
	r.DB.Warn = func(err error) { warnings = append(warnings, err) }
	put(t, r, row("a"))
	if len(warnings) != 1 || !errors.Is(warnings[0], os.ErrNotExist) {
		t.Errorf("the warnings are %v, want one", warnings)
	}
}
