package guard

import (
	"regexp"
	"strings"
	"sync"
)

// KeyLines hides private keys in a log that arrives line by line. [Redact] cannot do this, because it finds a private
// key only if the text contains the whole key. The zero value is ready for use. Several goroutines can use a KeyLines
// at the same time.
type KeyLines struct {
	mu   sync.Mutex
	left int // the number of following lines that may still belong to a key
}

// maxKeyLines is the maximum number of lines that are hidden after the first line of a key.
const maxKeyLines = 256

// keyBody matches a line inside a private key: base64, a header, or an empty line.
var keyBody = regexp.MustCompile(`[A-Za-z0-9+/=]{16}|^\s*$|^[A-Za-z-]+: `)

// Hide returns a line without the part that belongs to a private key.
func (k *KeyLines) Hide(line string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	hidden := placeholder(Secret, "private-key")
	if k.left > 0 {
		_, rest, ends := strings.Cut(line, "-----END ")
		if ends {
			k.left = 0
			_, rest, _ = strings.Cut(rest, "-----")
			return hidden + rest
		}
		if k.left--; keyBody.MatchString(line) {
			return hidden
		}
		k.left = 0
	}
	before, key, begins := strings.Cut(line, "-----BEGIN ")
	if !begins || !strings.Contains(key, "PRIVATE KEY") || strings.Contains(key, "-----END ") {
		return line
	}
	k.left = maxKeyLines
	return before + hidden
}
