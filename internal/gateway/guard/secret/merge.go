package secret

// Merge sorts matches and joins overlapping matches in place.
func Merge(m []Match) []Match {
	if len(m) < 2 {
		return m
	}
	sortMatches(m)
	out := m[:1]
	for _, next := range m[1:] {
		last := &out[len(out)-1]
		if next.Start >= last.End {
			out = append(out, next)
			continue
		}
		if next.rank < last.rank {
			last.Rule, last.rank = next.Rule, next.rank
		}
		last.End = max(last.End, next.End)
	}
	return out
}

// sortMatches sorts matches by their position. They consist of a few lists that are almost sorted, one for each view of
// the text, so merging these lists is faster than a general sort.
func sortMatches(m []Match) {
	var from []Match
	for {
		first := ordered(m)
		if first == len(m) {
			return
		}
		if from == nil {
			from = make([]Match, len(m))
		}
		for out := 0; out < len(m); {
			if first == 0 {
				first = ordered(m[out:])
			}
			a := append(from[:0], m[out:out+first]...)
			b := m[out+first:]
			b = b[:ordered(b)]
			first = 0
			for len(a) > 0 {
				if len(b) > 0 && before(&b[0], &a[0]) {
					m[out], b = b[0], b[1:]
				} else {
					m[out], a = a[0], a[1:]
				}
				out++
			}
			out += len(b)
		}
	}
}

// ordered returns how many matches at the beginning of m are in order.
func ordered(m []Match) int {
	n := min(1, len(m))
	for n < len(m) && !before(&m[n], &m[n-1]) {
		n++
	}
	return n
}

func before(a, b *Match) bool {
	if a.Start != b.Start {
		return a.Start < b.Start
	}
	return a.End > b.End
}
