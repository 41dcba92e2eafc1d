package manifest

// Typed returns the manifest in its dialect's own type.
func (m *Manifest) Typed() any { return m.typed }
