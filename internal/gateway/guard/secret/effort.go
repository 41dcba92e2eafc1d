package secret

// An attacker can write a text that is slow to scan, because it consists of the beginnings of tokens, or of values that
// are almost tokens. The effort for a text is therefore limited. At the limit, the rest of the text becomes one match,
// so it is redacted without a scan. The limit grows with the offset, so a scan of the redacted text gives the same
// result.
//
// A list of secrets stays far below the limit, because each match gives its effort back.
const (
	freeEffort = 4 << 10
	// foundEffort is the usual effort to find a match. A match in the text itself gives it back, so a list of secrets is
	// scanned to its end. A match in a view takes it once more, because the second pass searches for copies of the value.
	foundEffort = 32
)

// RuleUnscanned is the Rule of a match that covers unscanned text.
const RuleUnscanned = "unscanned"

// maxGiveUp is the maximum number of bytes of a token that can precede the word at which the scan stops.
const maxGiveUp = 256

// judgeEffort returns the effort to judge a value of n bytes.
func judgeEffort(n int) int { return 8 + min(n, sample)/2 }

// tired reports whether the effort for the text before an offset is too large.
func (s *scan) tired(at int) bool { return s.effort > freeEffort+at }

// giveUp appends a match for the rest of the text. The match begins with the word that ends at the given offset.
func (s *scan) giveUp(text []byte, at int, dst []Match) []Match {
	start := at - 1
	for start > 0 && at-start < maxGiveUp && solid[text[start-1]] {
		start--
	}
	return append(dst, Match{Rule: RuleUnscanned, Start: start, End: len(text)})
}
