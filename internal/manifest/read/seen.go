package read

import "slices"

// Seen is a set of names for detecting duplicates. It searches up to 16 names linearly, and uses a map for more. The
// zero Seen is empty.
type Seen struct {
	few  [16]string
	n    int
	many map[string]bool
}

// Has reports whether the set contains a name.
func (s *Seen) Has(name string) bool {
	if s.many != nil {
		return s.many[name]
	}
	return slices.Contains(s.few[:s.n], name)
}

// Add adds a name. The result reports whether the name is new.
func (s *Seen) Add(name string) bool {
	if s.Has(name) {
		return false
	}
	if s.many != nil {
		s.many[name] = true
		return true
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
