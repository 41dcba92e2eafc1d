package credential

import (
	"maps"
	"slices"
	"sync"

	"github.com/ambit-run/ambit/agent"
)

// maxGiven is how many values of one ref are remembered; of more, the oldest is
// let go. A program gets one when it starts, so that it takes as many starts, each
// with another value, before one that runs is forgotten; a request gets the value
// of the moment and is soon over. Where both use one ref, so many changes do.
const maxGiven = 256

// given are the secrets that were handed out. Whoever got one may say it as long
// as it lives, whatever has taken its place.
type given struct {
	mu sync.Mutex
	// byRef has the oldest first, each with what is secret inside it.
	byRef map[string][][]Secret
}

// keep remembers a secret, before it is handed out. Where there is nothing to
// remember it in, nobody scans.
func (g *given) keep(a *agent.Agent, ref string, s Secret) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.byRef[ref]
	if slices.ContainsFunc(all, func(one []Secret) bool { return one[0].Type() == s.Type() && one[0].Reveal() == s.Reveal() }) {
		return
	}
	if len(all) == maxGiven {
		all = slices.Delete(all, 0, 1)
	}
	g.byRef[ref] = append(all, parts(a, ref, s))
}

// all are the secrets that are remembered, always in the same order.
func (g *given) all() []Secret {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []Secret
	for _, ref := range slices.Sorted(maps.Keys(g.byRef)) {
		all = append(all, slices.Concat(g.byRef[ref]...)...)
	}
	return all
}
