package agent

import (
	"strconv"
	"strings"
	"unicode"
)

// Slug turns a display name into a NAME: lower-case letters, digits and single hyphens, at most 64 in all. It returns
// "agent" if nothing is left.
func Slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case 'a' <= r && r <= 'z' || unicode.IsDigit(r) && r < 0x80:
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 64 {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "agent"
}

// CommandLine formats a command for people, with quotes around arguments that need them.
func CommandLine(argv []string) string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		if out[i] = arg; arg == "" || strings.ContainsAny(arg, " \t\n\"'\\|&;<>$`") {
			out[i] = strconv.Quote(arg)
		}
	}
	return strings.Join(out, " ")
}

// Placeholder is a {name} in a template, at the bytes from Start to End.
type Placeholder struct {
	Name       string
	Start, End int
}

// Placeholders returns the {name} placeholders of a template, and the offsets of all other braces. A name is a letter or
// underscore, then letters, digits, underscores, hyphens and dots. {} and { "a": 1 } are plain text, so that a template
// can contain JSON.
func Placeholders(template string) (found []Placeholder, stray []int) {
	for i := 0; i < len(template); i++ {
		switch template[i] {
		case '{':
			end := i + 1
			for end < len(template) && isNameByte(template[end], end == i+1) {
				end++
			}
			if end > i+1 && end < len(template) && template[end] == '}' {
				found = append(found, Placeholder{template[i+1 : end], i, end + 1})
				i = end
			} else {
				stray = append(stray, i)
			}
		case '}':
			stray = append(stray, i)
		}
	}
	return found, stray
}

func isNameByte(c byte, first bool) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
		return true
	default:
		return !first && ('0' <= c && c <= '9' || c == '-' || c == '.')
	}
}
