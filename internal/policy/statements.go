package policy

// span is where the text of a rule stands: from its first annotation or word to
// its semicolon.
type span struct{ start, end, line int }

// statements finds the rules in a text without understanding them, for those
// who take a rule out and leave everything around it alone. Comments before a
// rule are not part of it.
func statements(text []byte) []span {
	var all []span
	open, line := -1, 1
	var at int // line of open
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
		case c == ' ' || c == '\t' || c == '\r':
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		default:
			if open < 0 {
				open, at = i, line
			}
			switch c {
			case '"':
				for i++; i < len(text) && text[i] != '"'; i++ {
					switch text[i] {
					case '\\':
						i++
					case '\n':
						line++
					}
				}
			case ';':
				all = append(all, span{open, i + 1, at})
				open = -1
			}
		}
	}
	return all
}
