package credential

import (
	"maps"
	"slices"
	"sync"

	"github.com/ambit-run/ambit/agent"
)

// maxIssued is how many values of one ref are remembered; then the oldest is
// forgotten. A program gets a value at its start and a request is short, so a
// value still in use is forgotten only after this many changes of the secret.
const maxIssued = 256

// issued are the secrets that were handed out. A program or server may repeat its
// value as long as it runs, even after the secret was replaced.
type issued struct {
	mu sync.Mutex
	// byRef has the oldest value first, each with the secrets inside it (see parts).
	byRef map[string][][]Secret
}

// add remembers a secret before it is handed out. A nil receiver remembers
// nothing: no output is scanned then.
func (i *issued) add(a *agent.Agent, ref string, s Secret) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	values := i.byRef[ref]
	if slices.ContainsFunc(values, func(v []Secret) bool {
		return v[0].Type() == s.Type() && v[0].Reveal() == s.Reveal()
	}) {
		return
	}
	if len(values) == maxIssued {
		values = slices.Delete(values, 0, 1)
	}
	i.byRef[ref] = append(values, parts(a, ref, s))
}

// all returns the remembered secrets in a stable order.
func (i *issued) all() (all []Secret) {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, ref := range slices.Sorted(maps.Keys(i.byRef)) {
		all = append(all, slices.Concat(i.byRef[ref]...)...)
	}
	return all
}
