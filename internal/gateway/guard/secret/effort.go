package secret

// An attacker can write a text that is slow to scan, because it consists of the beginnings of tokens, of values that are
// almost tokens, or of nothing but secrets. The effort for a text is therefore limited. At the limit, the rest of the
// text becomes one match, so it is redacted without a scan. The limit grows with the offset, so a scan of the redacted
// text gives the same result.
//
// Effort is counted in steps of about 10 ns. The limits are far above the effort for the texts that people write: prose
// needs less than one step for eight bytes.
const (
	// freeEffort is the effort that a text of any length may need. In 436 MB of real files, no file needed more than 512
	// steps above rateText, except for six files with lists of secrets or key codes, and none of them more than 1 << 10.
	freeEffort = 16 << 10
	// nameEffort is the effort to judge a name.
	nameEffort = 48
)

// rate is the allowed effort for each byte of text, in eighths of a step.
type rate int

const (
	rateText rate = 14
	rateRuns rate = 4 // base64 runs have their own rate, because a list of hashes consists of runs
	// The escapes of a text and its views have a lower rate, so that all forms together cost little more than the text
	// alone.
	rateForm rate = 2
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
func foundEffort(n int) int { return 20 + min(n, maxWindows*stride)/stride }

// judgeEffort returns the effort to judge a value of n bytes.
func judgeEffort(n int) int { return 8 + min(n, sample)/2 }

// tired reports whether the effort for a form of the text has exceeded the limit for the bytes before an offset.
func (s *scan) tired(at int, r rate) bool {
	free := freeEffort
	if r == rateForm {
		free /= 2
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
