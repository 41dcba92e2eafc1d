package host

import (
	"slices"

	"github.com/ambit-run/ambit/internal/toolserver"
)

// unresolved reports whether it is not known of a required server what it is.
func (l *lazy) unresolved() bool {
	return l.known() && slices.ContainsFunc(l.servers, func(s *neededServer) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.found.Problem != nil && !s.found.Requirement.Optional
	})
}

// proofs are what was found out about the servers that were tried, or could not be.
func (l *lazy) proofs() []toolserver.Proof {
	if !l.known() {
		return nil
	}
	var proofs []toolserver.Proof
	for _, s := range l.servers {
		s.mu.Lock()
		switch {
		case s.manager != nil:
			proofs = append(proofs, s.manager.Proofs()...)
		case s.down != nil:
			proofs = append(proofs, toolserver.Proof{Alias: s.found.Requirement.Server, Refusal: s.down})
		case s.found.Problem != nil:
			proofs = append(proofs, toolserver.Proof{Alias: s.found.Requirement.Server, Refusal: s.refusal("cannot be had: %v", s.found.Problem)})
		}
		s.mu.Unlock()
	}
	return proofs
}
