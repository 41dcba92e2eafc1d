package flow

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// After a panic, the memory is not locked. It is empty, and decisions are strict.
func TestPanic(t *testing.T) {
	for name, use := range map[string]func(*Session){
		"observe": func(s *Session) {
			s.Observe(reader, []byte(`{"path":"`+account+`"}`), resultOf("text"), Source{Time: now})
		},
		"read":   func(s *Session) { s.Read([]byte("text"), Source{Time: now}) },
		"decide": func(s *Session) { s.Decide(payer, []byte(`{"iban":"`+account+`"}`), now, false) },
		"made":   func(s *Session) { s.Made(payer, []byte(`{"iban":"`+account+`"}`), now) },
		"trusts": func(s *Session) { s.Trusts(now) },
	} {
		t.Run(name, func(t *testing.T) {
			s := NewMemory(DefaultWindow).Session("", now)
			s.m.blocks = []*block{nil} // a defect that makes every use of the memory panic
			func() {
				defer func() {
					if description := diag.Panic(recover()); !strings.HasPrefix(description, "runtime error: ") || !strings.Contains(description, "flow.(*block).") {
						t.Errorf("the description of the panic does not contain its cause and its place:\n%s", description)
					}
				}()
				use(s)
			}()
			if !s.m.mu.TryLock() {
				t.Fatal("the memory is still locked")
			}
			s.m.mu.Unlock()
			if v := s.Decide(payer, []byte(`{"iban":"`+account+`"}`), now, false); v.Untrusted || !v.Strict || len(v.Findings) != 1 || v.Findings[0].Reason != Unknown {
				t.Errorf("the decision is %+v", v)
			}
		})
	}
}

// Observe judges the arguments before it adds the result. It must release the memory if that panics.
func TestPanicInOrigin(t *testing.T) {
	s := NewMemory(DefaultWindow).Session("", now)
	s.Observe(reader, []byte(`{"path":"a"}`), resultOf("text"), Source{Time: now})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Observe did not panic")
			}
		}()
		s.origin(nil, nil, now)
	}()
	if !s.m.mu.TryLock() {
		t.Fatal("the memory is still locked")
	}
	s.m.mu.Unlock()
}
