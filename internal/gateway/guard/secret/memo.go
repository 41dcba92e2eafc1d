package secret

import "bytes"

// memo stores the judgments about the last names, because a text usually repeats a few names.
type memo [8]struct {
	name []byte
	yes  uint8
}

// The judgments about a name.
const (
	isPasswordName uint8 = 1 << iota // it is the name of a password
	isIgnoredName                    // its value is usually not secret
	isSecretKey                      // it is the name of a secret key
)

// maxJudged is the maximum number of bytes at the end of a name that are judged.
const maxJudged = 64

// judge reports whether a judgment applies to the name of an assignment.
func (s *scan) judge(judgment uint8, name []byte) bool {
	name = name[max(0, len(name)-maxJudged):]
	last := &s.memo[(len(name)+int(name[0])+int(name[len(name)-1]))%len(s.memo)]
	if !bytes.Equal(last.name, name) {
		s.effort += nameEffort
		last.name, last.yes = append(last.name[:0], name...), s.judgeName(name)
	}
	return last.yes&judgment != 0
}
