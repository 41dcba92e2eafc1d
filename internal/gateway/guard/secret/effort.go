package secret

// An attacker can write a text that is slow to scan, because it consists of the beginnings of tokens, of values that are
// almost tokens, or of nothing but secrets. The effort for a text is therefore limited. At the limit, the rest of the
// text becomes one match, so it is redacted without a scan. The limit grows with the offset, so a scan of the redacted
// text gives the same result.
//
// Effort is counted in steps of 10 to 30 ns. The limits are above the effort for the texts that people write. For eight
// bytes, prose needs less than one step, and a log or manifest full of names such as "token" needs less than three. A
// secret needs 20 to 60 steps.
const (
	// freeEffort is the effort that a text of any length may need. It is enough for a list of 200 secrets. In 157 MB of
	// real files, no file needed more than 6,002 steps above a rate of 2, which is below rateText, and no view needed
	// more than 2,048 steps above rateForm.
	freeEffort = 8 << 10
	// freeForm replaces freeEffort in base64 runs, in views, and in the search for copies.
	freeForm = 2 << 10
	// nameEffort is the effort to judge a name.
	nameEffort = 12
	// copyEffort is the effort to compare a text with a value that shares eight bytes with it.
	copyEffort = 4
)

// rate is the allowed effort for each byte of text, in eighths of a step.
type rate int

const (
	rateText rate = 3
	rateRuns rate = 4 // a list of hashes consists of base64 runs
	// The escapes of a text and its views have a lower rate, so that all forms together cost little more than the text
	// alone.
	rateForm rate = 1
)

// RuleUnscanned is the Rule of a match that covers text that was not scanned.
const RuleUnscanned = "unscanned"

const (
	// maxGiveUp is the maximum number of bytes by which giveUp extends its match to the left, to include the beginning of
	// a token.
	maxGiveUp = 256
	// afterStop is the number of bytes that the other forms of the text include after the offset at which the scan
	// stopped. A token in these forms can begin before that offset.
	afterStop = 1 << 10
)

// foundEffort returns the effort to remember a match of n bytes, and to search for its copies and parts.
func foundEffort(n int) int { return 10 + min(n, maxWindows*stride)/(2*stride) }

// judgeEffort returns the effort to judge a value of n bytes.
func judgeEffort(n int) int { return 3 + min(n, sample)/8 }

// tired reports whether the effort for a form of the text has exceeded the limit for the bytes before an offset.
func (s *scan) tired(at int, r rate) bool {
	free := freeEffort
	if r != rateText {
		free = freeForm
	}
	return s.effort > free+at*int(r)/8
}

// giveUp appends a match for the rest of the text. The match begins with the word that ends at the given offset.
func (s *scan) giveUp(text []byte, at int, dst []Match) []Match {
	start := at - 1
	for start > 0 && at-start < maxGiveUp && solid[text[start-1]] {
		start--
	}
	return append(dst, Match{Rule: RuleUnscanned, Start: start, End: len(text)})
}

// untilStop returns the part of a text that was scanned, and afterStop more bytes. m contains the matches in the text.
func untilStop(text []byte, m []Match) []byte {
	if n := len(m); n > 0 && m[n-1].Rule == RuleUnscanned {
		text = text[:min(len(text), m[n-1].Start+afterStop)]
	}
	return text
}
