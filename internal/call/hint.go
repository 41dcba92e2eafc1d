package call

import (
	"regexp"
	"strings"
	"sync"
)

var ofPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`ambit (secret set|[a-z]+)( --[a-z]+)* PATH\b`) })

// HintFor is a hint for an agent. Who writes hints does not know how the agent is called
// where they are read, and writes PATH; word is what to type there.
func HintFor(hint, word string) string {
	return ofPath().ReplaceAllStringFunc(hint, func(command string) string {
		return strings.TrimSuffix(command, "PATH") + word
	})
}
