package flow

import "slices"

// acrossSources judges a call that sends content of one result to a destination from another result, for example a code
// from one mail to the sender of another mail. It considers only destinations from fields of results that also contain
// running text, because the author of that text may have chosen the destination.
func (d *decision) acrossSources(leaves []leaf) {
	var origins []string
	hasRecipient := slices.ContainsFunc(leaves, func(l leaf) bool { return l.role == destination && recipients[l.name] })
	for i := range leaves {
		l := &leaves[i]
		if hasRecipient && ownAccounts[l.name] {
			continue
		}
		if l.role == destination && d.attested.has(l.key()) && !d.own.has(l.key()) {
			if from := d.attested.from[d.attested.slot(l.key())]; from != 0 {
				origins = append(origins, d.sources[from-1].Call)
			}
		}
	}
	if len(origins) == 0 {
		return
	}
	for i := range leaves {
		if l := &leaves[i]; l.role != destination && l.role != choice && l.role != option && l.role != identifier && l.role != moment && !d.own.has(l.key()) {
			d.fromElsewhere(l, origins)
		}
		if len(d.found) > 0 || d.steps <= 0 {
			return
		}
	}
}

var (
	// recipients contains names of arguments for the recipients of a message.
	recipients = wordSet(`to recipient recipients cc bcc`)
	// ownAccounts contains names of arguments for the user's own account. Beside a recipient, they are not destinations.
	ownAccounts = wordSet(`from mailbox sender user_email user_google_email`)
)

// minNumber is the smallest number of digits at which a number is unlikely to occur in two results by chance.
const minNumber = 5

// fromElsewhere reports a number, an address or a quotation in the argument that occurs only in results of calls that
// are not in origins.
func (d *decision) fromElsewhere(l *leaf, origins []string) {
	for i := range l.words().len() {
		if token := l.words().token(i); digits(token) >= minNumber && d.elsewhere(l, wordsOf(token), origins) {
			return
		}
	}
	for _, address := range addresses(l.value) {
		if d.elsewhere(l, wordsOf(address), origins) {
			return
		}
	}
	for i := 0; i+windowSize <= l.words().len() && d.steps > 0; i++ {
		if hits := d.sequences(l.words(), i, i+windowSize); d.apart(hits, origins) {
			d.report(l, AcrossSources, false, &hits[0])
			return
		}
	}
}

// elsewhere reports the part w of an argument if w occurs only in results of calls that are not in origins.
func (d *decision) elsewhere(l *leaf, w *words, origins []string) bool {
	key := w.key()
	if key == 0 || d.own.has(key) {
		return false
	}
	hits := d.occurrences(w, true)
	if d.attested.has(key) {
		from := d.attested.from[d.attested.slot(key)]
		if from == 0 || slices.Contains(origins, d.sources[from-1].Call) {
			return false
		}
		if len(hits) == 0 {
			d.report(l, AcrossSources, false, nil)
			d.found[len(d.found)-1].Source = d.sources[from-1]
			return true
		}
	}
	if !d.apart(hits, origins) {
		return false
	}
	d.report(l, AcrossSources, false, &hits[0])
	return true
}

// apart reports whether every hit is in the result of a call that is not in origins. Without a hit, it returns false.
func (d *decision) apart(hits []hit, origins []string) bool {
	return len(hits) > 0 && !slices.ContainsFunc(hits, func(h hit) bool {
		return slices.Contains(origins, h.b.source(h.at).Call)
	})
}
