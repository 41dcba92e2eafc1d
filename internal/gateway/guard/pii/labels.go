package pii

import (
	"bytes"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// The maximum distance, in bytes, between a number and a label that describes the number.
const (
	maxBefore = 72 // the distance of a label before the number
	maxAfter  = 28 // the distance of a label after the number
	maxKey    = 64 // only the end of a longer member name is read
)

// labels identifies a set of labels, which are words that describe a nearby number.
type labels uint8

// phrase is a label of one or more words.
type phrase struct {
	text string // in lower case, with single spaces
	set  labels
}

// vocabulary contains the phrases of all sets, indexed by their first two bytes.
var (
	vocabulary [256][256][]phrase
	sets       = []string{""}
)

// newLabels adds a set to the vocabulary. The list is separated by commas.
func newLabels(list string) labels {
	if list == "" {
		return 0
	}
	set := labels(len(sets))
	sets = append(sets, list)
	add := func(text string) {
		var v view.View
		if v.Normal([]byte(text)) { // the text that is searched is normalized too
			text = string(v.Text)
		}
		folded := []byte(text)
		for i, c := range folded {
			folded[i] = lower(c)
		}
		bucket := &vocabulary[folded[0]][folded[1]]
		*bucket = append(*bucket, phrase{string(folded), set})
	}
	for text := range strings.SplitSeq(list, ", ") {
		if add(text); !view.ASCII([]byte(text)) {
			add(strings.ToUpper(text)) // the search folds only the case of ASCII letters
		}
	}
	return set
}

// near reports whether a label of the set is near text[start:end], or in the name of the JSON member that contains the
// text.
func (s *search) near(start, end int, set labels) bool {
	return s.anyNear(start, end) && s.has(start, set)
}

// has reports whether a label of the set is near the number for which anyNear was called last.
func (s *search) has(start int, set labels) bool {
	return s.keyed[set] || s.isRecent(s.last[set], start) || slices.Contains(s.following, set)
}

// isRecent reports whether a label that ends at an offset is in the same paragraph as a number, and close to it.
func (s *search) isRecent(label, start int) bool {
	return label > s.paragraph && label >= start-maxBefore
}

// anyNear reports whether any label is near text[start:end] or in the name of the JSON member.
func (s *search) anyNear(start, end int) bool {
	if !s.labeled {
		s.labeled, s.read, s.paragraph = true, 0, 0
		clear(s.last)
		clear(s.keyed)
		if !view.ASCII(s.key) && s.keyView.Normal(s.key) {
			s.key = s.keyView.Text
		}
		s.scanLabels(s.key, 0, len(s.key), func(set labels, _ int) { s.keyed[0], s.keyed[set] = true, true })
	}
	if s.start == start && s.next == end {
		return s.keyed[0] || len(s.following) > 0 || s.isRecent(s.last[0], start)
	}
	s.start = start
	// Each byte is searched at most twice, even if there are many candidates: once for a label before a number, and once
	// for a label after it.
	if from := max(s.read, start-maxBefore); from < start {
		s.scanLabels(s.text, from, start, func(set labels, end int) { s.last[0], s.last[set] = end, end })
		s.read = start
	}
	if s.next != end {
		s.next, s.following = end, s.following[:0]
		to := end
		for to < len(s.text) && to < end+maxAfter && !endsClause[s.text[to]] {
			to++
		}
		s.scanLabels(s.text, end, to, func(set labels, _ int) { s.following = append(s.following, set) })
	}
	return s.keyed[0] || len(s.following) > 0 || s.isRecent(s.last[0], start)
}

// endsClause contains the characters at which the search for a label after a number ends.
var endsClause = tableOf("\n;,0123456789")

// scanLabels calls a callback for every label in text[from:to].
func (s *search) scanLabels(text []byte, from, to int, found func(set labels, end int)) {
	s.work += to - from
	for i := from; i+1 < to; i++ {
		c := text[i]
		if c == '\n' && i > 0 && text[i-1] == '\n' && &text[0] == &s.text[0] {
			s.paragraph = i
		}
		if c < 'A' || i > 0 && c < 0x80 && alnum(text[i-1]) && !(upper(c) && !upper(text[i-1])) {
			continue
		}
		for _, p := range vocabulary[lower(c)][lower(text[i+1])] {
			if end := p.end(text[:to], i); end > 0 {
				found(p.set, end)
			}
		}
	}
}

// end returns the end of the phrase if it begins at offset i of the text, or 0. A phrase of up to four letters must
// match a whole word. A longer phrase can also match the beginning of a word. Between two words of a phrase there is
// a space, a line break, an underscore, a dash or nothing, as in taxID.
func (p *phrase) end(text []byte, i int) int {
	for j := 0; j < len(p.text); j++ {
		switch {
		case i == len(text):
			return 0
		case lower(text[i]) == p.text[j]:
			i++
		case p.text[j] == ' ' && upper(text[i]):
		default:
			return 0
		}
	}
	if len(p.text) > 4 || i == len(text) || !alnum(text[i]) || upper(text[i]) && !upper(text[i-1]) ||
		text[i] == 's' && (i+1 == len(text) || !alnum(text[i+1])) || digit(text[i]) {
		return i
	}
	return 0
}

func upper(c byte) bool { return 'A' <= c && c <= 'Z' }

func lower(c byte) byte {
	if upper(c) {
		return c + 'a' - 'A'
	}
	if c == '_' || c == '-' || c == '\n' || c == '\t' {
		return ' '
	}
	return c
}

// direct is the kind of the label directly in front of a number.
type direct uint8

const (
	unknown direct = iota
	aPhone         // a word for a phone
	another        // a word for another kind of number, such as an order
	anID           // the word "id" or a similar word
	aRegion        // the name of a country, followed by a word such as "number"
	aFiller        // a word between a label and its number
	aNumber        // a word such as "number"
)

// directLabels contains words that can be directly in front of a number, each with its kind of label.
var directLabels = func() map[string]direct {
	out := map[string]direct{}
	for _, l := range []struct {
		kind direct
		list string
	}{
		{aPhone, "phone phones telephone telephones tel tele telefon telefone telefono telefoon telefonnummer telefonnr " +
			"telepono telefonu telno puhelin puhelinnumero telefax fax faxnummer mobile mobil mobilnummer mobiltelefon " +
			"mobilephone mobileno mobilenumber movil cell cellphone cellular celular cellulare portable gsm cep handy " +
			"handynummer rufnummer festnetz sms whatsapp viber msisdn landline voicemail pager phonenumber phoneno " +
			"homephone workphone desk"},
		{anID, "id ids uid uuid gid value"},
		{another, "pid tid sid call message contact case order orders invoice ticket trace traceid span spanid sku part serial isbn " +
			"ean upc gtin asin tracking shipment ref reference version build rev revision commit hash checksum size bytes " +
			"len length offset count total price amount cost sum ts time timestamp datetime date at epoch seq sequence " +
			"nonce seed port thread request session index batch lot row line page item product article block job run event " +
			"lat lon lng latitude longitude duration elapsed ns ms usec nsec step iteration counter snowflake etag " +
			"quantity qty stock balance votes views population transaction txn"},
		{aFiller, "is was are ist lautet es est my mein meine our unser the a an und and or work home office main " +
			"primary secondary private direct emergency e164 raw dienstlich privat of"},
		{aNumber, "number numbers no nr num nummer numara numaram numarasi numero numer cislo one"},
	} {
		for word := range strings.FieldsSeq(l.list) {
			out[word] = l.kind
		}
	}
	for _, r := range regionNames {
		for word := range strings.FieldsSeq(r.words) {
			out[word] = aRegion
		}
	}
	return out
}()

// labelBefore returns the kind of the label directly in front of text[end]. Punctuation and filler words can separate
// the two.
func (s *search) labelBefore(text []byte, end int) direct {
	from := max(0, end-48)
	at, numbered := end, false
	var word [16]byte
	defer func() { s.work += end - at }()
	for range 7 {
		for at > from && !wordByte(text[at-1]) {
			switch text[at-1] {
			case ',', ';', '!', '&', '<', '$', '%', '/':
				return unknown
			case '.':
				if end-at > 1 && at >= 6 && wordByte(text[at-2]) && wordByte(text[at-6]) && wordByte(text[at-5]) &&
					wordByte(text[at-4]) && wordByte(text[at-3]) {
					return unknown // a full stop that ends a sentence, not an abbreviation
				}
			}
			at--
		}
		to := at
		for to > from && digit(text[to-1]) && to > at-2 {
			to-- // phone1
		}
		b := to
		for b > from && wordByte(text[b-1]) && !digit(text[b-1]) && !(b < to && upper(text[b]) && !upper(text[b-1])) {
			b--
		}
		if b == to || to-b > len(word) || b > 0 && digit(text[b-1]) {
			return unknown
		}
		for i, c := range text[b:to] {
			word[i] = lower(c)
		}
		kind := directLabels[string(word[:to-b])]
		switch {
		case kind == aNumber:
			numbered = true
		case kind == aRegion && !numbered:
			return unknown
		case kind != aFiller:
			return kind
		}
		at = b
	}
	return unknown
}

// wordByte reports whether a byte is part of a word. An underscore is not part of a word, because names such as tax_id
// contain it between words.
func wordByte(c byte) bool { return alnum(c) || c >= 0x80 }

// asks contains phrases in front of a phone number, such as "call me at".
var asks = strings.Split("call me at|call me on|call us at|call us on|call him at|call him on|call her at|call her on|"+
	"call them at|call them on|reach me at|reach me on|reach us at|reach us on|reached at|reached on|text me at|"+
	"text me on|ring me on|ring me at|answering at|answering on|receiving messages to|on my registered", "|")

// askedBefore reports whether a phrase in asks directly precedes an offset.
func (s *search) askedBefore(at int) bool {
	for range 2 {
		if at > 0 && (s.text[at-1] == ' ' || s.text[at-1] == ':') {
			at--
		}
	}
	if at < 10 || s.text[at-1] != 't' && s.text[at-1] != 'n' && s.text[at-1] != 'o' && s.text[at-1] != 'd' {
		return false
	}
	s.work += 24
	low := bytes.ToLower(s.text[max(0, at-24):at])
	for _, phrase := range asks {
		if bytes.HasSuffix(low, []byte(phrase)) {
			return true
		}
	}
	return false
}
