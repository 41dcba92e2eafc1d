package toolserver

import "github.com/ambit-run/ambit/internal/call"

// uncontained refuses a server whose program would see what ambit keeps, if that is
// not wanted. Nothing of it is started, and it is not tried again: whether programs
// can be contained is the same for as long as this process runs.
func (s *server) uncontained() bool {
	if !s.options.Contain || s.remote() || s.options.Launch != nil || containable() {
		return false
	}
	s.turn.pass()
	p := Proof{Alias: s.spec.Alias, Package: PackageDigest{Declared: s.spec.Digest, Status: Absent}}
	s.refuse(&p, call.Refuse(stage, call.IsolationUnavailable, "server %s is not contained, and --production asks for that", s.spec.Alias))
	s.progress("refused")
	s.adopt(p, nil, nil, 0)
	s.finish()
	return true
}
