package flow

import (
	"bytes"
	"regexp"
	"strings"
	"time"
)

// origin describes how far the result of a call can be trusted, judged by the arguments of the call.
type origin struct {
	// opaque is set if one author may have written the whole result, or if the result repeats its arguments in another
	// form. The fields of such a result are not trusted.
	opaque bool
	// printed is set if a program printed the result. A program can print anything, so addresses in the fields are not
	// trusted.
	printed bool
	// doubted contains the arguments that come from untrusted text. If the result repeats them as fields, they are
	// still untrusted.
	doubted []uint64
}

// origin judges the result of a call by the arguments of the call.
func (s *Session) origin(t *Tool, leaves []leaf, now time.Time) (o origin) {
	s.m.mu.Lock()
	defer s.m.unlock(now)
	d := &decision{Session: s, tool: t, steps: maxSteps}
	lists := hasPart(t.Name, listing)
	for i := range leaves {
		l := &leaves[i]
		doubted := len(l.value) <= maxAtom && !isPlain(l) && !s.own.has(l.key()) && !s.attested.has(l.key()) &&
			len(d.occurrences(l.words(), true)) > 0
		if doubted {
			o.doubted = append(o.doubted, l.key())
		}
		switch {
		case l.role == code && !lists && !hasPart(l.name, queryNames):
			o.printed = true
		case t.Effect && !t.fetching:
		case bytes.Contains(l.value, []byte("://")) && !bytes.HasPrefix(l.value, []byte("gid://")), doubted && l.role != path && hostForm.Match(l.value):
			o.opaque = true
		case l.role == path && t.queries() && !hasPart(string(l.value), contentPaths):
		case !lists && (hasPart(l.name, objectNames) || computes(l) && !s.own.has(l.key())):
			o.opaque = true
		}
	}
	return o
}

// queries reports whether a tool sends requests to an API of the agent's choice, judged by an argument such as queryParams.
// Its argument "path" names a resource of the API, not a file of one author.
func (t *Tool) queries() bool {
	for name := range t.schema.Properties {
		if strings.HasPrefix(strings.Join(nameParts(name), ""), "queryparam") {
			return true
		}
	}
	return false
}

// contentPaths contains words in API paths. A resource at such a path is a file that one author may have written.
var contentPaths = map[string]bool{
	"raw": true, "content": true, "contents": true, "file": true, "files": true, "blob": true, "blobs": true, "download": true, "attachment": true,
	"attachments": true,
}

// hostForm matches the name of a host, with or without a path.
var hostForm = regexp.MustCompile(`^[\pL\pN_-]+(\.[\pL\pN_-]+)*\.\pL{2,}(/\S*)?$`)

// computes reports whether the result of a tool may contain the argument in another form, for example decoded.
func computes(l *leaf) bool {
	return (l.role == prose || hasPart(l.name, inputNames)) && !hasPart(l.name, listing) && !hasPart(l.name, queryNames)
}

// inputNames contains the names of arguments from which a tool computes its result.
var inputNames = map[string]bool{
	"input": true, "inputs": true, "data": true, "string": true, "strings": true, "parts": true, "expression": true, "value": true, "values": true,
	"encoded": true, "payload": true,
}

// queryNames contains the names of arguments that select from the user's data. A query is not part of its result.
var queryNames = map[string]bool{"sql": true, "query": true, "statement": true, "filter": true}
