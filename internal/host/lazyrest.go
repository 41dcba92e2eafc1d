package host

import "time"

// tend stops servers that nobody uses and tries those again that are missed.
func (l *lazy) tend() {
	tick := time.NewTicker(max(min(l.idle/4, firstRetry), 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-l.of.ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range l.servers {
			s.rest(l.idle)
			s.mu.Lock()
			wanted := s.missed && s.manager == nil
			s.mu.Unlock()
			if wanted {
				s.take(false)
			}
		}
	}
}

// rest stops the server if it was idle for so long. One that is watched is not
// idle, and one that is quarantined stays so.
func (s *neededServer) rest(idle time.Duration) {
	s.mu.Lock()
	m := s.manager
	if m == nil || s.busy > 0 || time.Since(s.used) < idle || m.Watched() || m.Proofs()[0].Drifted() {
		s.mu.Unlock()
		return
	}
	s.manager = nil
	s.mu.Unlock()
	m.Close()
	s.of.of.options.Log(s.id, "stopped: it was not used")
}
