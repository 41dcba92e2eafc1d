package grant

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/ambit-run/ambit/agent"
)

func FuzzCheckAction(f *testing.F) {
	for _, s := range []string{"tool.a", "memory.read", "tool.", "tool..a", "net.a", "tool.*", "tool.a b", "tool.\x00", "agent.h/i", ".", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, action string) {
		if checkAction(action) != "" {
			return
		}
		parts := strings.Split(action, ".")
		if len(parts) < 2 || !slices.Contains(agent.ActionNamespaces, parts[0]) || slices.Contains(parts, "") ||
			strings.ContainsFunc(action, func(r rune) bool {
				return r == '*' || r == unicode.ReplacementChar || unicode.IsSpace(r) || unicode.IsControl(r)
			}) {
			t.Errorf("%q can be granted", action)
		}
	})
}
