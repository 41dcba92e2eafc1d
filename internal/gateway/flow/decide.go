package flow

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Finding is one argument in doubt.
type Finding struct {
	// Argument is a JSON pointer to the argument. It is empty if the action as a whole is in doubt.
	Argument string
	Value    string
	Reason   Reason
	// Asked is set if the untrusted text also asks for the action of the tool.
	Asked bool
	// Source is the call whose result contained the value. It is empty if no such call is known.
	Source Source
}

// Verdict says where the arguments of a call come from. Findings contains the arguments that may come from an attacker.
type Verdict struct {
	// Untrusted is set if the agents of the principal have read untrusted text.
	Untrusted bool
	// Strict is set if the decision was strict: see the package comment.
	Strict   bool
	Findings []Finding
}

// The limits of one decision.
const (
	maxSteps    = 20_000
	maxHits     = 32
	maxFindings = 8
	near        = 30 // maximum number of tokens between a value and a verb
	nearID      = 8
	nearTime    = 15
	windowSize  = 6 // number of tokens in a quotation
	maxPhrase   = 12
	maxShown    = 200
	minAmount   = 3  // minimum number of digits of an amount that is judged
	maxPart     = 40 // maximum length of a token, for values that the text spells with other separators
)

// Decide compares the arguments of a call with the texts and values that were read before. If strict is set, or if text
// was forgotten, every destination and identifier without a known origin is in doubt.
func (s *Session) Decide(t *Tool, arguments []byte, now time.Time, strict bool) Verdict {
	leaves := t.leaves(arguments)
	s.m.mu.Lock()
	defer s.m.unlock(now)
	s.m.prune(now)
	forgot := s.strict(now)
	v := Verdict{Untrusted: len(s.m.blocks) > 0, Strict: strict || forgot}
	if !v.Untrusted && !forgot {
		return v // no text has reached the agents, so none can steer them
	}
	d := &decision{Session: s, tool: t, strict: v.Strict, steps: maxSteps}
	for i := range leaves {
		if len(d.found) >= maxFindings {
			break
		}
		l := &leaves[i]
		if s.approved.has(t.approvalKey(*l)) {
			continue
		}
		d.judge(l)
		if d.steps <= 0 && len(d.found) == 0 {
			// An attacker's text may repeat parts of the value until the search has no steps left.
			d.report(l, Unknown, false, nil)
		}
	}
	if len(d.found) == 0 && t.Effect && !t.onPage && (t.verbs&deleting != 0 || t.Destructive && t.verbs == 0) {
		d.named(leaves)
	}
	if len(d.found) == 0 && t.Effect && len(leaves) == 0 {
		d.called()
	}
	if len(d.found) == 0 && t.Network {
		d.acrossSources(leaves)
	}
	v.Findings = d.found
	return v
}

// approvalKey identifies a value of one argument of one tool.
func (t *Tool) approvalKey(l leaf) uint64 {
	w := wordsOf([]byte("approved " + t.Name + " " + l.pointer))
	w.text = append(append(w.text, 0), l.value...)
	return w.key()
}

type decision struct {
	*Session
	tool   *Tool
	strict bool
	steps  int
	found  []Finding
}

// hit is an occurrence of a value in untrusted text.
type hit struct {
	b        *block
	at, last int // positions of the first and the last token
}

func (d *decision) report(l *leaf, r Reason, asked bool, h *hit) {
	f := Finding{Reason: r, Asked: asked}
	if l != nil {
		f.Argument, f.Value = l.pointer, string(l.value[:min(len(l.value), maxShown)])
	}
	if h != nil {
		f.Source = h.b.source(h.at)
	}
	d.found = append(d.found, f)
}

func (d *decision) judge(l *leaf) {
	if d.tool.readsOnly() {
		if l.role == destination || l.role == other {
			d.value(l, true, nearID)
		}
		return
	}
	switch l.role {
	case choice:
	case option:
		d.chosen(l)
	case excess:
		d.report(l, Unknown, false, nil)
	case prose:
		d.prose(l)
	case code:
		d.code(l)
	case moment:
		d.echoed(l, nearTime)
	case amount:
		if len(l.words().text) < minAmount {
			return // short numbers occur everywhere
		}
		d.echoed(l, near)
		if long := *l; len(d.found) == 0 {
			long.read = grouped(l.words())
			d.echoed(&long, near)
		}
	case identifier:
		d.value(l, strong(l), nearID)
	case other:
		d.value(l, !isPlain(l) && (strong(l) || l.words().len() > 1), nearID)
	default:
		d.value(l, true, near)
	}
}

// strong reports whether an identifier is unlikely to occur in text by chance.
func strong(l *leaf) bool {
	digit, letter := false, false
	for _, c := range l.words().text {
		if '0' <= c && c <= '9' {
			digit = true
		} else {
			letter = true
		}
	}
	return len(l.words().text) >= 8 || digit && letter && len(l.words().text) >= 3
}

// value judges a short value: a destination, an identifier, a path or a name. If strong is set, the value is unlikely
// to occur in text by chance. A verb counts if its distance, in tokens, is at most reach.
func (d *decision) value(l *leaf, strong bool, reach int) {
	key := l.key()
	if key == 0 {
		return
	}
	hits := d.occurrences(l.words(), l.role == destination || strong)
	attested := d.attested.has(key) || !d.strict && d.introducedBefore(l)
	own := d.own.has(key)
	if own && !d.strict {
		return
	}
	if attested {
		reach = min(reach, nearID)
	}
	for i := range hits {
		if d.asksFor(l, &hits[i], reach) && (strong || d.meant(&hits[i])) {
			r := AskedFor
			if !attested && !own {
				r = OnlyUntrusted
			}
			d.report(l, r, true, &hits[i])
			return
		}
	}
	switch {
	case strong && len(hits) >= maxHits: // an attacker may add copies so that the search does not reach the request
		d.report(l, AskedFor, false, &hits[0])
	case own || attested:
	case l.role == identifier && !d.strict && !(d.tool.Network && receives(l.name)): // from the user's service
	case l.role == path && !d.strict && !systemPath.Match(l.value): // an ordinary file that the agent works on
	case !d.tool.readsOnly() && (l.role == other && !secretNames[l.name] || l.role == destination && d.tool.addsContact(l.name)):
		// values that agents often enter, such as names in forms, or contacts in the user's own data
	case len(hits) > 0 && strong && !d.tool.readsOnly() && !isName(l):
		d.report(l, OnlyUntrusted, false, &hits[0])
	case len(hits) == 0 && d.composed(l, l.value, !d.tool.readsOnly() && bytes.IndexByte(l.value, '@') < 0):
	case len(hits) == 0 && l.role == destination && !d.tool.readsOnly() && d.disguised(l):
	case d.strict && (l.role == destination || l.role == identifier):
		d.report(l, Unknown, false, nil)
	}
}

// introducedBefore reports whether an earlier call introduced the value. For a tool that sends nothing, a path that
// trustParts recorded is enough.
func (d *decision) introducedBefore(l *leaf) bool {
	return d.approved.has(introductionKey(l.name, l.value)) || l.role == path && !d.tool.Network && d.approved.has(partKey(l.value))
}

// systemPath matches paths that leave their folder, hidden files, and files of the operating system.
var systemPath = regexp.MustCompile(`^~|\.\.|(?i)^(/|[a-z]:\\)(etc|usr|bin|sbin|lib|boot|root|var|opt|dev|proc|sys|system|windows|program)\b|(^|[/\\])\.[^/\\.]*([/\\]|rc$|profile$)`)

// secretNames contains the names of arguments that decide who gets access to something.
var secretNames = map[string]bool{
	"password": true, "passphrase": true, "passcode": true, "pin": true, "secret": true, "token": true, "key": true, "role": true, "permission": true,
	"permissions": true, "scope": true, "policy": true,
}

// isName reports whether a destination is a plain name, such as a person or a channel. The service looks the name up in
// the user's own data, so a name from untrusted text does not lead to a stranger.
func isName(l *leaf) bool { return l.role == destination && isPlain(l) }

// isMail reports whether a value is exactly one e-mail address.
func isMail(value []byte) bool { return len(value) > 0 && len(emailForm.Find(value)) == len(value) }

// isPlain reports whether a value is a plain word or name. Addresses and numbers are not plain.
func isPlain(l *leaf) bool {
	return digits(l.words().text) == 0 && !bytes.ContainsAny(l.value, "@:/.#\\")
}

// meant reports whether a verb near a short number asks for an action on that number. In English, the text must also
// contain a word for identifiers, such as "id", or name the tool's object. The package knows these words only in
// English, so in other languages the verb is enough.
func (d *decision) meant(h *hit) bool {
	first, end := h.b.bounds(h.at)
	inEnglish, verb := false, false
	for i := max(first, h.at-nearID); i < min(end, h.last+1+nearID); i++ {
		token := h.b.token(i)
		if roleOf[string(token)] == identifier || slices.Contains(d.tool.nouns, hashOf(token)) {
			return true
		}
		inEnglish = inEnglish || english[string(token)]
		verb = verb || table.at(h.b, i)&d.tool.verbs != 0
	}
	return verb && (!inEnglish || d.tool.verbs&deleting != 0)
}

// readsOnly reports whether the tool only reads. A call of such a tool is in doubt only if untrusted text asks for it,
// because opening a link from a mail or page is ordinary work.
func (t *Tool) readsOnly() bool { return !t.Effect || t.fetching }

// echoed judges a value that often occurs by chance, such as a time. The value is in doubt only if untrusted text asks
// for the action near it.
func (d *decision) echoed(l *leaf, reach int) {
	hits := d.occurrences(l.words(), false)
	for i := range hits {
		if d.asks(&hits[i], reach) {
			d.report(l, AskedFor, true, &hits[i])
			return
		}
	}
}

// chosen judges a value that the schema lists. The value is in doubt only if a verb for the action is close to it in
// untrusted text.
func (d *decision) chosen(l *leaf) {
	if d.own.has(l.key()) {
		return
	}
	hits := d.sequences(l.words(), 0, l.words().len())
	for i := range hits {
		if d.verb(&hits[i], nearID) {
			d.report(l, AskedFor, true, &hits[i])
			return
		}
	}
}

// code judges a command. The command is in doubt if untrusted text asks for the action near two adjacent words of the
// command. Two words that come from the user or from a field do not count.
func (d *decision) code(l *leaf) {
	if d.sent(l, true) {
		return
	}
	known := map[string]bool{}
	for word := range bytes.FieldsFuncSeq(l.value, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`=,;|&()", r) }) {
		if w := wordsOf(word); d.own.has(w.key()) || d.attested.has(w.key()) {
			for i := range w.len() {
				known[string(w.token(i))] = true
			}
		}
	}
	n := l.words().len()
	verbs := d.tool.verbs
	if verbs&running != 0 { // a verb such as "open" must be closer to the command than "run", because it has other objects too
		verbs = running
	}
	for i := 0; n > 0 && i+min(n, 2) <= n; i++ { // one word alone, such as the name of a column, often occurs by chance
		part := l.words().slice(i, i+min(n, 2))
		if len(part) < 4 || known[string(l.words().token(i))] && known[string(l.words().token(i+min(n, 2)-1))] {
			continue
		}
		hits := d.sequences(l.words(), i, i+min(n, 2))
		for j := range hits {
			if h := &hits[j]; h.near(verbs, near, false) || d.verb(h, nearID) || foreign(h, near) {
				d.report(l, OnlyUntrusted, true, &hits[j])
				return
			}
		}
	}
}

// prose judges free text that a tool sends to others. It reports addresses, account numbers, short phrases and
// quotations if untrusted text asks for the action near them.
func (d *decision) prose(l *leaf) {
	if !d.tool.Network || d.own.has(l.key()) {
		return
	}
	for _, part := range slices.Concat(addresses(l.value), accounts(l.value)) {
		w := wordsOf(part)
		if len(w.text) < 8 || d.own.has(w.key()) {
			continue
		}
		reach := near
		if digits(w.text) == len(w.text) {
			reach = nearID // a long number may be something other than an account number
		}
		hits := d.occurrences(w, true)
		for i := range hits {
			if d.verbInProse(&hits[i], reach) || reach == near && foreign(&hits[i], reach) {
				d.report(l, OnlyUntrusted, true, &hits[i])
				return
			}
		}
	}
	if d.sent(l, false) {
		return
	}
	n := l.words().len()
	if len(l.words().text)-digits(l.words().text) <= 2 && dateForm.Match(l.value) {
		return // short texts often occur by chance
	}
	if n >= 2 && n <= maxPhrase {
		hits := d.sequences(l.words(), 0, n)
		for i := range hits {
			if d.verbInProse(&hits[i], nearID) {
				d.report(l, AskedFor, true, &hits[i])
				return
			}
		}
		return
	}
	for i := 0; i+windowSize <= n && d.steps > 0; i++ {
		hits := d.sequences(l.words(), i, i+windowSize)
		for j := range hits {
			if h := extend(hits[j], l.words(), i); d.verbInProse(&h, nearID) {
				d.report(l, AskedFor, true, &h)
				return
			}
		}
	}
}

// extend extends a hit to the whole passage that the text and w have in common. In w, the hit begins at w.token(at). A
// verb inside the passage is part of the agent's quotation, not a request.
func extend(h hit, w *words, at int) hit {
	first, end := h.b.bounds(h.at)
	for i := at - 1; i >= 0 && h.at > first && string(w.token(i)) == string(h.b.token(h.at-1)); i-- {
		h.at--
	}
	for i := at + windowSize; i < w.len() && h.last+1 < end && string(w.token(i)) == string(h.b.token(h.last+1)); i++ {
		h.last++
	}
	return h
}

// sent judges the addresses in free text or in a command, and reports whether one is in doubt. If always is set, an
// address from untrusted text is in doubt even if the text does not ask for the action.
func (d *decision) sent(l *leaf, always bool) bool {
	for _, part := range addresses(l.value) {
		w := wordsOf(part)
		key := w.key()
		if d.own.has(key) || d.attested.has(key) {
			continue
		}
		hits := d.occurrences(w, true)
		switch {
		case len(hits) > 0 && always:
			d.report(l, OnlyUntrusted, d.asks(&hits[0], near), &hits[0])
			return true
		case len(hits) > 0:
		case d.composed(l, part, always):
			return true
		case d.strict:
			d.report(l, Unknown, false, nil)
			return true
		}
	}
	return false
}

// named judges an action that can do harm with any arguments, such as a deletion. It is in doubt if untrusted text asks
// for it, unless all arguments come from the user.
func (d *decision) named(leaves []leaf) {
	for i := range leaves {
		if !d.own.has(leaves[i].key()) {
			leaves = nil
			break
		}
	}
	if len(leaves) > 0 {
		return // all arguments come from the user
	}
	for bi := len(d.m.blocks) - 1; bi >= 0; bi-- {
		b := d.m.blocks[bi]
		for _, first := range b.deleting {
			verb := b.token(int(first))
			for p := b.head(hashOf(verb)); p != 0 && d.steps > 0; p = b.prev[p-1] {
				d.steps--
				if h := (hit{b, int(p) - 1, int(p) - 1}); string(b.token(h.at)) == string(verb) && b.requests(h.at) && d.object(&h) {
					d.report(nil, Named, true, &h)
					return
				}
			}
		}
	}
}

// called judges an action without arguments. It is in doubt if untrusted text contains a verb of the tool close to the
// name of the tool's object.
func (d *decision) called() {
	for _, noun := range d.tool.nouns {
		for _, b := range d.m.blocks {
			for p := b.head(noun); p != 0 && d.steps > 0; p = b.prev[p-1] {
				d.steps--
				if h := (hit{b, int(p) - 1, int(p) - 1}); hashOf(b.token(h.at)) == noun && d.verb(&h, nearID) {
					d.report(nil, Named, true, &h)
					return
				}
			}
		}
	}
}

// object reports whether the text around a verb names the object of the tool. The package knows such names only in
// English, so in other languages the verb is enough.
func (d *decision) object(h *hit) bool {
	first, end := h.b.bounds(h.at)
	inEnglish := false
	for i := max(first, h.at-nearID); i < min(end, h.last+1+nearID); i++ {
		token := h.b.token(i)
		if slices.Contains(d.tool.nouns, hashOf(token)) {
			return true
		}
		inEnglish = inEnglish || english[string(token)]
	}
	return !inEnglish && table.at(h.b, h.at)&deleting != 0
}
