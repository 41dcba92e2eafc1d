package secret

import "bytes"

// This file reads the less common notations of a value and its name: lines of configuration, sentences, calls, and the
// data source names of Go.

// isSetter reports whether the name around text[start:end] is a function that sets a password or token, such as
// setPassword, or a function of SQL.
func isSetter(text []byte, start, end int) bool {
	if string(text[start:end]) == "PASSWORD" || string(text[start:end]) == "password" {
		return start > 1 && (text[start-1] == '=' || text[start-1] == ' ' && text[start-2] == '=')
	}
	for n := 0; start > 0 && n < maxName && alnum[text[start-1]]; n++ {
		start--
	}
	return end-start > len("setPass") && foldHasPrefix(text[start:], "set")
}

// isDirective reports whether a line consists only of a name, which begins at text[at], and its value. A keyword such
// as ENV may precede the name.
func isDirective(text []byte, at int, a assignment) bool {
	end := a.end
	if a.quoted && end < len(text) {
		end++
	}
	end = spaces.skip(text, end, 3)
	if end < len(text) && text[end] != '\r' && text[end] != '\n' || measure(text[a.start:a.end]).digits == 0 {
		return false
	}
	line := at
	for n := 0; n < maxName && line > 0 && text[line-1] != '\n'; n++ {
		line--
	}
	before := bytes.TrimSpace(text[line:at])
	return len(before) == 0 || directives[string(before)]
}

// directives lists the keywords and signs that can precede the name in a line of a Dockerfile, a shell or a list.
var directives = map[string]bool{
	"ENV": true, "ARG": true, "set": true, "set -x": true, "set -gx": true, "setx": true, "-": true, "$": true, ">": true,
}

// isQualified reports whether the word before a name marks the name as secret, such as "API" in "API key=".
func isQualified(text []byte, at int) bool {
	before := text[max(0, at-len("private ")):at]
	for _, word := range []string{"api ", "secret ", "access ", "private "} {
		if foldHasSuffix(before, word) {
			return true
		}
	}
	return false
}

// maxProse is the maximum number of bytes of a sentence that are read after a word for a password.
const maxProse = 64

// tryProse handles a sentence such as "the password of the database is …". The word that means a password, here
// "password", contains text[start:end].
func (s *scan) tryProse(text []byte, start, end int, dst []Match) []Match {
	end = s.runEnd(text, className, end, len(text))
	if end < s.context.prose || end >= len(text) || text[end] != ' ' || end-start > maxName ||
		!s.judge(isPasswordName, text[start:end]) {
		return dst
	}
	limit := min(len(text), end+maxProse)
	s.context.prose = limit
	s.effort += 16
	for at := end; at < limit; at++ {
		from := 0
		switch c := text[at]; {
		case c == ':' && at+1 < limit && text[at+1] == ' ':
			from = at + 2
		case c == ' ':
			for _, verb := range []string{" is ", " ist ", " lautet "} {
				if foldHasPrefix(text[at:limit], verb) {
					from = at + len(verb)
				}
			}
		case c != '@' && !nameClass[c]:
			return dst
		}
		if from > 0 {
			if to := s.sentenceEnd(text, from); to > from {
				return s.found(text, from, to, rulePassword, rankName, dst)
			}
		}
	}
	return dst
}

// sentenceEnd returns the end of the password that begins at text[at] in a sentence. It returns 0 if there is no
// password, or only a value that looks like a word or a number.
func (s *scan) sentenceEnd(text []byte, at int) int {
	for n := 0; n < 2 && at < len(text) && (quotes[text[at]] || text[at] == '*'); n++ {
		at++
	}
	if at >= len(text) {
		return 0
	}
	to := s.runEnd(text, classSolid, at, min(len(text), at+4*maxProse))
	for to > at && sentenceEnds[text[to-1]] {
		to--
	}
	value := text[at:to]
	s.effort += judgeEffort(len(value))
	q := measure(value)
	if q.size < 8 || q.size > maxProse || q.digits == 0 || q.lower == 0 || q.upper == 0 && q.digits < 2 ||
		q.wordy() && q.digits+q.other < 3 || !q.password(true) || isPlaceholder(value) || isNumber(value) || isLabel(value, q) ||
		isUUID(value) || bytes.ContainsAny(value, "/<>(){}[]|,;=\\") {
		return 0
	}
	return to
}

var sentenceEnds = bytesOf(".,;:!?)*`")

// tryDSN handles the password in a data source name such as user:password@tcp(host)/database.
func (s *scan) tryDSN(text []byte, start, _ int, dst []Match) []Match {
	from := start
	for n := 0; n < maxName && from > 0 && userClass[text[from-1]] && !quotes[text[from-1]] && text[from-1] != '='; n++ {
		from--
	}
	s.effort += 8
	user, value, ok := bytes.Cut(text[from:start], []byte{':'})
	if !ok || len(user) == 0 || len(value) < minValue || isPlaceholder(value) || isDefault(user, value) || start <= s.named {
		return dst
	}
	return s.found(text, start-len(value), start, "connection-string-password", rankName, dst)
}

// option is a command-line option that takes a password. If attached is set, the value follows without a space.
type option struct {
	text     string
	attached bool
}

// flags maps the name of a command to the option that takes a password.
var flags = map[string]option{
	"docker login": {text: " -p"}, "sshpass": {text: " -p"}, "mysql": {" -p", true},
	"redis-cli": {text: " -a"}, "ldapsearch": {text: " -w"}, "snmp-server": {text: " community"},
}

func (s *scan) startCommand(text []byte, start, end int, dst []Match) []Match {
	s.context.flag, s.context.command = flags[string(text[start:end])], end
	return dst
}

// maxCommand is the maximum distance between the name of a command and its option.
const maxCommand = 200

// tryFlag handles the option of a command.
func (s *scan) tryFlag(text []byte, start, end int, dst []Match) []Match {
	o := s.context.flag
	if o.text != string(text[start:end]) || start-s.context.command > maxCommand || end >= len(text) {
		return dst
	}
	if (text[end] == ' ') == o.attached {
		return dst
	}
	at := spacesQuotes.skip(text, end, 3)
	to := s.runEnd(text, classSolid, at, len(text))
	value := text[at:to]
	s.effort += judgeEffort(len(value))
	if to <= s.named || !measure(value).password(true) || isPlaceholder(value) || isFileName(value) {
		return dst
	}
	return s.found(text, at, to, "command-password", rankName, dst)
}
