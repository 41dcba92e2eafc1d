package read

// Seen watches a list for a name that comes twice. Most lists are short and
// are looked through one by one; past that a map keeps it linear. The zero
// Seen has seen nothing.
type Seen struct {
	few  [8]string
	n    int
	many map[string]bool
}

// Add reports whether a name is new.
func (s *Seen) Add(name string) bool {
	if s.many != nil {
		if s.many[name] {
			return false
		}
		s.many[name] = true
		return true
	}
	for _, f := range s.few[:s.n] {
		if f == name {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return true
	}
	s.many = make(map[string]bool, 4*len(s.few))
	for _, f := range s.few {
		s.many[f] = true
	}
	s.many[name] = true
	return true
}
