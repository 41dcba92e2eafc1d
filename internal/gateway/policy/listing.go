package policy

import (
	"strings"
	"sync"
	"weak"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
)

// listings caches the results of [Live.Hidden] for one snapshot of the policy.
type listings struct {
	mu  sync.Mutex
	all map[listingKey]*listing
}

// listingKey contains everything that a result depends on. The pointer is weak, so that the key does not keep an agent
// in memory after a reload. Fields that the rules do not read are empty, so that several callers can share a result.
type listingKey struct {
	agent                            weak.Pointer[agent.Agent]
	name                             string
	caller, groups, issuer, acr, amr string
}

type listing struct {
	once   sync.Once
	hidden []bool
}

// maxListings is the maximum number of cached results.
const maxListings = 1_000

// find returns the entry for a key. If the entry is new, the caller must compute its content.
func (l *listings) find(key listingKey) *listing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil || l.all[key] == nil && len(l.all) >= maxListings {
		l.all = map[listingKey]*listing{}
	}
	if l.all[key] == nil {
		l.all[key] = &listing{}
	}
	return l.all[key]
}

// Hidden reports for each of an agent's tools whether the rules deny every call to it by the caller of c, for all
// arguments, times and skills. A nil slice means that no tool is hidden. The caller must not change the result.
func (l *Live) Hidden(a *agent.Agent, name string, c *call.Call) []bool {
	if found := l.listing(a, name, c); found != nil {
		return found.hidden
	}
	return nil
}

// Version returns a value that changes when the rules change, or when the caller's properties that the rules read
// change. It may also change at other times.
func (l *Live) Version(a *agent.Agent, name string, c *call.Call) any { return l.listing(a, name, c) }

func (l *Live) listing(a *agent.Agent, name string, c *call.Call) *listing {
	s := l.load()
	if s.rules == nil && !s.refusesAll && a.Dialect != agent.GPARS {
		return nil
	}
	key := listingKey{agent: weak.Make(a), name: name, groups: groupsKey(s.rules.named(c.Attributes))}
	if s.rules != nil && s.rules.reads&partCaller != 0 {
		key.caller = c.Principal
	}
	if s.rules != nil && s.rules.reads&partCredential != 0 && c.Attributes != nil {
		key.issuer, key.acr, key.amr = c.Attributes.Issuer, c.Attributes.ACR, strings.Join(c.Attributes.AMR, "\x00")
	}
	found := s.listings.find(key)
	found.once.Do(func() {
		found.hidden = make([]bool, len(a.Tools))
		for i := range a.Tools {
			q := asked{a, name, &a.Tools[i], c, l.options.Now(), partTime | partSkill, false, ""}
			found.hidden[i] = s.foresee(q) == Never
		}
	})
	return found
}
