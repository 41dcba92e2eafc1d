package agent

// Placeholder is a {name} in a template, from Start to End of its text.
type Placeholder struct {
	Name       string
	Start, End int
}

// Placeholders finds the {name} placeholders of a template, and the offsets of
// braces that belong to none. A name is a letter or underscore, then letters,
// digits, underscores, hyphens and dots; {} and { "a": 1 } are plain text, so
// that JSON can stand in a template.
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
