package flow

import (
	"bytes"
	"unicode/utf8"
)

// The functions in this file decide whether a text asks for an action.

// asks reports whether the text around an occurrence asks for the action of the tool, or may ask for it in an unknown
// language.
func (d *decision) asks(h *hit, reach int) bool { return d.verb(h, reach) || foreign(h, reach) }

// asksFor is like asks, but ignores an unknown language if the value is a plain word or name.
func (d *decision) asksFor(l *leaf, h *hit, reach int) bool {
	return d.verb(h, reach) || l.role != other && !isName(l) && foreign(h, reach)
}

// verb reports whether the text near an occurrence asks for the action of the tool with a verb.
func (d *decision) verb(h *hit, reach int) bool { return h.near(d.tool.verbs, reach, false) }

// verbInProse is like verb, but for a part of a message. It ignores verbs of other languages in English text, such as
// "agenda", because a message repeats many words of a text.
func (d *decision) verbInProse(h *hit, reach int) bool { return h.near(d.tool.verbs, reach, true) }

// near reports whether a verb of the families asks for an action near an occurrence. If verbs is 0, every verb counts
// except those for reading. inProse is set for a part of a message.
func (h *hit) near(verbs family, reach int, inProse bool) bool {
	b := h.b
	first, end := b.bounds(h.at)
	if verbs == 0 {
		verbs = ^fetching
	}
	for i := max(first, h.at-reach); i < min(end, h.last+1+reach); i++ {
		if (i < h.at || i > h.last) && b.asksFor(i, verbs, inProse) {
			return true
		}
	}
	return false
}

// asksFor reports whether the token at a position is a verb of the families that asks for an action.
func (b *block) asksFor(at int, verbs family, inProse bool) bool {
	if table.at(b, at)&verbs == 0 || !b.requests(at) {
		return false
	}
	word := b.token(at)
	verb := table.begins(word)
	if verb.english&verbs == 0 {
		return !inProse || !b.certainlyEnglish(at)
	}
	states := thirdPerson(word) && (verb.others == 0 || b.certainlyEnglish(at)) && !b.hasActor(at)
	return !states && !b.reportsProgress(at)
}

// hasActor reports whether a word in front of a verb can mean the agent, as in "the assistant sends it to …".
func (b *block) hasActor(at int) bool {
	first, _ := b.bounds(at)
	for i := max(first, at-nearID); i < at; i++ {
		if actors[string(b.token(i))] {
			return true
		}
	}
	return false
}

var actors = map[string]bool{
	"assistant": true, "agent": true, "who": true, "whoever": true, "bot": true, "ai": true, "model": true, "you": true, "system": true,
}

// foreign reports whether the text around an occurrence is in an unknown language, in which any word could be a
// request.
func foreign(h *hit, reach int) bool {
	b := h.b
	first, end := b.bounds(h.at)
	from, to := max(first, h.at-reach), min(end, h.last+1+reach)
	known, unknown, numbers := 0, 0, 0
	for i := from; i < to && known*12 < to-from; i++ {
		if i >= h.at && i <= h.last {
			continue
		}
		switch t := b.token(i); {
		case b.isPart(i):
			numbers++
		case functionWords[string(t)], reports(t) && table.of(t) != 0, t[0] >= utf8.RuneSelf && aloneIn(t):
			known++
		case len(t) > 1 && digits(t) == 0 && !fieldWords[string(t)]:
			unknown++
		default:
			numbers++
		}
	}
	return known*12 < unknown && unknown >= 6 && unknown > 2*numbers
}

// certainlyEnglish reports whether the text around a position is certainly English. In such a text, "agenda" is a noun and
// not a Spanish request.
func (b *block) certainlyEnglish(at int) bool {
	first, end := b.bounds(at)
	n := 0
	for i := max(first, at-near); i < min(end, at+1+near); i++ {
		switch word := b.token(i); {
		case english[string(word)]:
			n++
		case foreignWords[string(word)], word[0] >= utf8.RuneSelf && aloneIn(word):
			return false
		}
	}
	return n >= minEnglish
}

// minEnglish is the minimum number of function words in a text that is certainly English.
const minEnglish = 2

// requests reports whether the verb at a position asks for an action: "delete" does, "deleted" does not, "must be
// deleted" does.
func (b *block) requests(at int) bool {
	if b.isPart(at) && !b.inPhrase(at-1) && !b.inPhrase(at+1) {
		return false
	}
	if !reports(b.token(at)) {
		return true
	}
	first, _ := b.bounds(at)
	for i := at - 1; i > max(first, at-4); i-- {
		if t := string(b.token(i)); t == "be" || t == "get" {
			return duties[string(b.token(i-1))]
		}
	}
	return false
}

// reportsProgress reports whether a word such as "starting" has no function word near it, as in the messages of programs.
// In a sentence, the word can be part of a request.
func (b *block) reportsProgress(at int) bool {
	if !bytes.HasSuffix(b.token(at), []byte("ing")) {
		return false
	}
	first, end := b.bounds(at)
	for i := max(first, at-nearID); i < min(end, at+1+nearID); i++ {
		if functionWords[string(b.token(i))] && !b.isPart(i) {
			return false
		}
	}
	return true
}

// thirdPerson reports whether an English verb is in the third person, such as "sends". Such a verb states what happens. It
// may also be a noun, such as "changes".
func thirdPerson(word []byte) bool {
	return bytes.HasSuffix(word, []byte("s")) && !bytes.HasSuffix(word, []byte("ss"))
}

// inPhrase reports whether a token is a function word within an address or a name, such as in "please.send.it". The "e" in
// "e-mail" is a word of other languages, but not one here.
func (b *block) inPhrase(at int) bool {
	return at >= 0 && at < len(b.starts) && b.isPart(at) && functionWords[string(b.token(at))] && !b.follows(at, "email")
}

// duties contains words that turn a past form into a request, such as "to" in "has to be deleted".
var duties = map[string]bool{"to": true, "must": true, "should": true, "shall": true, "please": true}

// reports returns true if an English verb is in a past form, such as "updated" or "created". Such verbs usually report
// what happened.
func reports(token []byte) bool {
	switch string(token) {
	case "sent", "wrote", "made", "gave", "paid", "bought":
		return true
	}
	return len(token) > 4 && bytes.HasSuffix(token, []byte("ed")) && !bytes.HasSuffix(token, []byte("eed"))
}

// at returns the families of the verb that starts at position i of a block.
func (t *verbTable) at(b *block, i int) (f family) {
	token := b.token(i)
	if token[0] < utf8.RuneSelf || !aloneIn(token) {
		return t.of(token)
	}
	r, _ := utf8.DecodeRune(token)
	for _, v := range t.chars[r] {
		if b.follows(i, v.word) {
			f |= v.family
		}
	}
	return f
}

// follows reports whether the tokens that start at a position spell a word. It is for scripts without spaces, where
// each character is a token.
func (b *block) follows(at int, word string) bool {
	for len(word) > 0 {
		if at >= len(b.starts) {
			return false
		}
		t := b.token(at)
		if len(t) > len(word) || string(t) != word[:len(t)] {
			return false
		}
		word = word[len(t):]
		at++
	}
	return true
}
