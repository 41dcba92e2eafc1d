package secret

import "bytes"

// tryParameter handles signatures and codes in the query of a URL.
func (s *scan) tryParameter(text []byte, start, end int, dst []Match) []Match {
	if start == 0 || text[start-1] != '?' && text[start-1] != '&' && text[start-1] != ';' {
		return dst
	}
	to := s.runEnd(text, classBare, end, len(text))
	to = padding.skip(text, to, 2)
	value := text[end:to]
	space, line := []byte("%20"), []byte("%0A")
	s.effort += judgeEffort(len(value))
	if !measure(value).token(40) || bytes.Contains(value, space) || bytes.Contains(value, line) {
		return dst // the value is too short, or it is readable text
	}
	return s.found(text, end, to, "url-signature", rankName, dst)
}

func (s *scan) tryBearer(text []byte, start, end int, dst []Match) []Match {
	at := blanks.skip(text, end, 3)
	if at == end || at == len(text) || start > 0 && alnum[text[start-1]] {
		return dst
	}
	to := s.runEnd(text, classBare, at, len(text))
	to = padding.skip(text, to, 2)
	for to > at && text[to-1] == '.' {
		to--
	}
	s.effort += judgeEffort(to - at)
	if value := text[at:to]; to <= s.covered || !measure(value).token(12) || isPlaceholder(value) {
		return dst
	}
	return s.found(text, at, to, "bearer-token", rankName, dst)
}

// tryCookie handles the values in a cookie header.
func (s *scan) tryCookie(text []byte, _, end int, dst []Match) []Match {
	at := end
	for n := 0; n < 4 && at < len(text) && (closers[text[at]] || text[at] == ':'); n++ {
		at++
	}
	if at == end || at == len(text) || at < s.context.judged {
		return dst
	}
	for at < len(text) {
		nameEnd := s.runEnd(text, className, at, len(text))
		if nameEnd == at || nameEnd >= len(text) || text[nameEnd] != '=' {
			break
		}
		to := s.runEnd(text, classBare, nameEnd+1, len(text))
		to = padding.skip(text, to, 2)
		s.context.judged = to + 1
		s.effort += 8 + judgeEffort(to-nameEnd)
		value, shortest := text[nameEnd+1:to], 16
		if name := text[at:nameEnd]; foldHasSuffix(name, "sid") || foldHasSuffix(name, "session") || s.judge(isSecretKey, name) {
			shortest = 10
		}
		if q := measure(value); q.token(shortest) && q.lower+q.upper > 0 && !isPlaceholder(value) && to > s.covered {
			dst = s.found(text, nameEnd+1, to, "cookie", rankName, dst)
		}
		at = to
		for n := 0; n < 3 && at < len(text) && (text[at] == ';' || text[at] == ' '); n++ {
			at++
		}
		if at == to {
			break
		}
	}
	return dst
}

// tryURL handles the user and password of a URL.
func (s *scan) tryURL(text []byte, _, end int, dst []Match) []Match {
	to := s.runEnd(text, classUser, end, len(text))
	if to == len(text) || text[to] != '@' || to == end {
		return dst
	}
	user := text[end:to]
	s.effort += judgeEffort(len(user))
	colon := bytes.IndexByte(user[:min(len(user), 256)], ':')
	if colon < 0 {
		if q := measure(user); q.token(20) && !bytes.Contains(text[to:min(len(text), to+64)], []byte("sentry.io")) {
			return s.found(text, end, to, "url-password", rankName, dst)
		}
		return dst
	}
	value := user[colon+1:]
	if len(value) < 3 || isPlaceholder(value) || isLabel(value, measure(value)) ||
		foldHasPrefix(text[to+1:], "example") || isDefault(user[:colon], value) {
		return dst
	}
	return s.found(text, end+colon+1, to, "url-password", rankName, dst)
}

func (s *scan) tryPrivateKey(text []byte, start, _ int, dst []Match) []Match {
	s.effort += 60
	if end := keyEnd(text, start); end > s.covered {
		return s.found(text, start, end, "private-key", 1, dst)
	}
	return dst
}

func (s *scan) startPutty(_ []byte, start, _ int, dst []Match) []Match {
	s.context.putty = start + 1
	return dst
}

func (s *scan) endPutty(text []byte, _, end int, dst []Match) []Match {
	start := s.context.putty - 1
	if start < 0 || end-start > maxStrip {
		return dst
	}
	s.context.putty = 0
	return s.found(text, start, s.runEnd(text, classDouble, end, len(text)), "putty-private-key", 1, dst)
}

func (s *scan) startCurl(_ []byte, start, _ int, dst []Match) []Match {
	s.context.curl = start + 1
	return dst
}

// tryUser handles the option --user of the command curl.
func (s *scan) tryUser(text []byte, start, end int, dst []Match) []Match {
	if s.context.curl == 0 || start-s.context.curl > 400 {
		return dst
	}
	at := end
	for n := 0; n < 6 && at < len(text) && (blanks[text[at]] || text[at] == '='); n++ {
		at++
	}
	if at == len(text) {
		return dst
	}
	to := 0
	switch text[at] {
	case '"':
		at++
		to = s.runEnd(text, classDouble, at, len(text))
	case '\'':
		at++
		to = s.runEnd(text, classSingle, at, len(text))
	default:
		to = s.runEnd(text, classSolid, at, len(text))
	}
	s.effort += judgeEffort(to - at)
	colon := bytes.IndexByte(text[at:min(to, at+128)], ':')
	if colon < 0 {
		return dst
	}
	user, password := text[at:at+colon], text[at+colon+1:to]
	if len(password) == 0 && to < len(text) && quotes[text[to]] { // user:'password'
		k := classSingle
		if text[to] == '"' {
			k = classDouble
		}
		password = text[to+1 : s.runEnd(text, k, to+1, len(text))]
		to += 1 + len(password)
	}
	if len(password) < 3 && len(user) < 8 || len(password) > 0 && isPlaceholder(password) ||
		len(user) > 0 && isPlaceholder(user) && (len(password) == 0 || user[0] == '<' || user[0] == '[') {
		return dst
	}
	if len(password) >= 3 {
		at = to - len(password)
	}
	return s.found(text, at, to, "curl-auth-user", rankName, dst)
}

var (
	spacesQuotes = bytesOf(" \"'`")
	yamlSigns    = bytesOf(" \t\r\n|>-\"'`") // the characters that can be between a name and its value
)

// maxManifest is the maximum distance between the lines "kind: Secret" and "data:" of a Kubernetes manifest.
const maxManifest = 1 << 10

func (s *scan) tryKind(text []byte, start, end int, dst []Match) []Match {
	at := spacesQuotes.skip(text, end, 4)
	if !foldHasPrefix(text[at:], "secret") || at+6 < len(text) && alnum[text[at+6]] {
		return dst
	}
	s.context.kind = start + 1
	if data := s.context.data - 1; data >= 0 && start-data < maxManifest {
		return s.secretData(text, data, dst)
	}
	return dst
}

func (s *scan) tryData(text []byte, start, end int, dst []Match) []Match {
	if start < s.context.comment || start > 0 && (nameClass[text[start-1]] || text[start-1] == '/') {
		return dst
	}
	if s.context.kind > 0 && start-s.context.kind < maxManifest {
		return s.secretData(text, end, dst)
	}
	s.context.data = end + 1
	return dst
}

// secretData handles the lines after "data:" in the manifest of a Kubernetes secret.
func (s *scan) secretData(text []byte, at int, dst []Match) []Match {
	s.context.data = 0
	for at < len(text) && at >= s.named {
		for at < len(text) && (blanks[text[at]] || text[at] == '#') {
			if text[at] != '#' {
				at++
				continue
			}
			at = s.runEnd(text, classLine, at, len(text))
			s.context.comment = at
		}
		nameEnd := s.runEnd(text, className, at, len(text))
		if nameEnd == at || nameEnd >= len(text) || text[nameEnd] != ':' {
			break
		}
		at = yamlSigns.skip(text, nameEnd+1, 24)
		to := s.runEnd(text, classBare, at, len(text))
		to = padding.skip(text, to, 2)
		if to-at < 10 || to < len(text) && text[to] == ':' {
			break // the value is empty, and the next name follows
		}
		s.effort += 32
		if value := text[at:to]; to > s.covered && !isPlaceholder(value) && !isCodeText(value, measure(value)) {
			dst = s.found(text, at, to, "kubernetes-secret-yaml", rankName, dst)
		}
		at = spacesQuotes.skip(text, to, len(text))
	}
	return dst
}
