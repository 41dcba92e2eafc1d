package agent

import (
	"strconv"
	"strings"
	"unicode"
)

// Slug converts a display name to lower-case ASCII letters, digits and single hyphens. The result has at most 64
// bytes. If nothing remains, Slug returns "agent".
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

// CommandLine formats a command for display. Arguments with special characters are quoted.
func CommandLine(argv []string) string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		if out[i] = arg; arg == "" || strings.ContainsAny(arg, " \t\n\"'\\|&;<>$`") {
			out[i] = strconv.Quote(arg)
		}
	}
	return strings.Join(out, " ")
}

// Placeholder is a placeholder in a template, such as {name}. The placeholder is template[Start:End], including the
// braces.
type Placeholder struct {
	Name       string
	Start, End int
	// Modifier is [Optional] in {name?}, [Repeated] in {name*}, and empty in {name}.
	Modifier string
}

// The values of Placeholder.Modifier. A placeholder with a modifier must be the whole value of a field in the
// request, such as a header or a query parameter. An optional placeholder without a value removes the field. A
// repeated placeholder sends the field once for each element of the value.
const (
	Optional = "?"
	Repeated = "*"
)

// Placeholders returns the placeholders of a template, and the offsets of all braces outside placeholders. A
// placeholder's name begins with a letter or underscore, followed by letters, digits, underscores, hyphens and dots.
// A modifier can follow the name. Texts such as {} and { "a": 1 } are not placeholders, so a template can contain
// JSON.
func Placeholders(template string) (found []Placeholder, stray []int) {
	for i := 0; i < len(template); i++ {
		switch template[i] {
		case '{':
			end := i + 1
			for end < len(template) && isNameByte(template[end], end == i+1) {
				end++
			}
			p := Placeholder{Name: template[i+1 : end], Start: i}
			if rest := template[end:]; strings.HasPrefix(rest, Optional) || strings.HasPrefix(rest, Repeated) {
				p.Modifier = rest[:1]
			}
			if p.End = end + len(p.Modifier) + 1; p.Name != "" && p.End <= len(template) && template[p.End-1] == '}' {
				found = append(found, p)
				i = p.End - 1
			} else {
				stray = append(stray, i)
			}
		case '}':
			stray = append(stray, i)
		}
	}
	return found, stray
}

// Whole returns the placeholder if the template is exactly one placeholder. Otherwise, the second result is false.
func Whole(template string) (Placeholder, bool) {
	found, _ := Placeholders(template)
	if len(found) != 1 || found[0].Start != 0 || found[0].End != len(template) {
		return Placeholder{}, false
	}
	return found[0], true
}

func isNameByte(c byte, first bool) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
		return true
	default:
		return !first && ('0' <= c && c <= '9' || c == '-' || c == '.')
	}
}

// BodyKind decides how ambit escapes the values in a request's body.
type BodyKind string

// UnknownBody is the kind of a body whose values cannot be escaped, because ambit does not know its format.
const (
	JSONBody      BodyKind = "json"
	FormBody      BodyKind = "form"
	XMLBody       BodyKind = "xml"
	MultipartBody BodyKind = "multipart"
	TextBody      BodyKind = "text"
	UnknownBody   BodyKind = "unknown"
)

// KindOfBody returns the kind of a body. The content type decides. Without a content type, a template that starts like
// a JSON object or list is JSON, and any other template is text.
func KindOfBody(contentType, template string) BodyKind {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	switch kind = strings.TrimSpace(kind); {
	case kind == "" && looksLikeJSON(template):
		return JSONBody
	case kind == "", kind == "text/plain":
		return TextBody
	case kind == "application/json", kind == "text/json", strings.HasSuffix(kind, "+json"):
		return JSONBody
	case kind == "application/x-www-form-urlencoded":
		return FormBody
	case kind == "application/xml", kind == "text/xml", kind == "text/html", strings.HasSuffix(kind, "+xml"):
		return XMLBody
	case strings.HasPrefix(kind, "multipart/"):
		return MultipartBody
	}
	return UnknownBody
}

// looksLikeJSON reports whether a template seems to be JSON. It ignores an opening brace that begins a placeholder.
func looksLikeJSON(template string) bool {
	template = strings.TrimLeft(template, " \t\r\n")
	if template == "" || template[0] != '{' && template[0] != '[' {
		return false
	}
	found, _ := Placeholders(template)
	return len(found) == 0 || found[0].Start > 0
}
