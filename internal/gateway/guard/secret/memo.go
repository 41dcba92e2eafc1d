package secret

import "bytes"

// memo remembers what is known about the last names, because a text usually repeats a few of them.
type memo [8]struct {
	name       []byte
	known, yes uint8 // a bit for each judgment
}

// The judgments about a name.
const (
	isPasswordName = iota
	isIgnoredName
	isSecretKey
)

var judgments = [...]func(name []byte) bool{passwordName, ignoredName, secretKey}

// judge returns a judgment about the name of an assignment.
func (s *scan) judge(judgment int, name []byte) bool {
	last := &s.memo[(len(name)+int(name[0])+int(name[len(name)-1]))%len(s.memo)]
	if last.known == 0 || !bytes.Equal(last.name, name) {
		last.name, last.known, last.yes = append(last.name[:0], name...), 0, 0
	}
	bit := uint8(1) << judgment
	if last.known&bit == 0 {
		last.known |= bit
		s.effort += 16
		if judgments[judgment](name) {
			last.yes |= bit
		}
	}
	return last.yes&bit != 0
}
