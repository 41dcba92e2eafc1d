package flow

import (
	"bytes"
)

// hostOf returns the host of a URL or an e-mail address, or nil.
func hostOf(value []byte) []byte {
	_, rest, found := bytes.Cut(value, []byte("://"))
	switch {
	case found:
	case bytes.HasPrefix(value, []byte("www.")):
		rest = value
	case bytes.IndexByte(value, '@') > 0:
		return value[bytes.LastIndexByte(value, '@')+1:]
	default:
		return nil
	}
	if end := bytes.IndexAny(rest, "/?#\\"); end >= 0 {
		rest = rest[:end]
	}
	rest = rest[bytes.LastIndexByte(rest, '@')+1:]
	if port := bytes.LastIndexByte(rest, ':'); port > 0 {
		rest = rest[:port]
	}
	return rest
}

// hostKey returns the key of a host. It differs from the key of the same text as a value, so that a trusted value does
// not make a host trusted.
func hostKey(host []byte) uint64 {
	w := wordsOf(host)
	if key := w.key(); key != 0 {
		return key ^ 0x5851f42d4c957f2c
	}
	return 0
}

// maxLabels is the maximum number of labels that are removed from the front of a host to find its parent domains.
const maxLabels = 3

// composed judges an address that occurs in no result. It reports the address if untrusted text contains its host or a
// parent domain of the host, because the text can ask the agent to append a secret to the path or to the host name. If
// always is set, the text need not ask for the action.
func (d *decision) composed(l *leaf, value []byte, always bool) bool {
	host := hostOf(value)
	if host == nil && d.tool.fetching && hostForm.Match(value) {
		host, _, _ = bytes.Cut(value, []byte("/"))
	}
	if host == nil {
		return false
	}
	added := bytes.IndexByte(value, '?') >= 0
	for name, i := host, 0; i <= maxLabels && bytes.IndexByte(name, '.') > 0; i++ {
		key := hostKey(name)
		if d.own.has(key) {
			return false
		}
		if d.attested.has(key) { // the author of a text may have chosen this field
			from := d.attested.from[d.attested.slot(key)]
			if from == 0 || !d.carries(value, name, d.sources[from-1].Call) {
				return false
			}
			d.report(l, AcrossSources, false, nil)
			d.found[len(d.found)-1].Source = d.sources[from-1]
			return true
		}
		w := wordsOf(name)
		hits := d.sequences(w, 0, w.len())
		for j := range hits {
			h := &hits[j]
			// A mail address that a page tool types is usually the user's own, even if the page is on the same host.
			asked := d.asks(h, near) && !(d.tool.onPage && isMail(value) && !hasPart(l.name, urlNames))
			if always || asked && (added || !d.tool.readsOnly()) || d.carries(value, name, h.b.source(h.at).Call) {
				d.report(l, OnlyUntrusted, asked, h)
				return true
			}
		}
		var label []byte
		label, name, _ = bytes.Cut(name, []byte("."))
		added = added || !bytes.EqualFold(label, []byte("www"))
	}
	return false
}

// carries reports whether an address contains a number or a key that comes from the result of a call other than origin.
func (d *decision) carries(address, host []byte, origin string) bool {
	rest := wordsOf(bytes.Replace(address, host, []byte(" "), 1))
	for i := range rest.len() {
		token := rest.token(i)
		if n := digits(token); n < minNumber && (n == 0 || n == len(token) || len(token) < minKey) {
			continue
		}
		w := wordsOf(token)
		key := w.key()
		if d.own.has(key) {
			continue
		}
		if d.attested.has(key) {
			if from := d.attested.from[d.attested.slot(key)]; from == 0 || d.sources[from-1].Call != origin {
				return true
			}
		}
		if d.apart(d.sequences(w, 0, 1), []string{origin}) {
			return true
		}
	}
	return false
}

// minKey is the minimum length at which a token of letters and digits can be a secret.
const minKey = 6
