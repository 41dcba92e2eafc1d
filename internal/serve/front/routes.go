package front

import (
	"cmp"
	"strings"
	"sync"
)

// maxRoutes limits the total size of [routes] in bytes. If the limit is exceeded, the tables that have not been used
// for the longest time are deleted. The next request of a caller whose table was deleted reads the lists again.
const maxRoutes = 64 << 20

// routes remembers which server listed each resource, resource template and prompt. Each caller has a separate table,
// for two reasons: a server may offer different items to each caller, and the lists of one caller must not displace the
// lists of another. A new list replaces the caller's earlier list.
type routes struct {
	mu    sync.Mutex
	of    map[string]*table // the table of each principal
	bytes int
	clock int // the number of uses so far
	most  int // tests lower maxRoutes
}

// table maps "uri X", "template X" or "prompt X" to the alias of the server, for each list.
type table struct {
	lists map[string]map[string]string
	bytes int
	used  int
}

// keep stores a list of a caller. The alias is "" for items of the agent itself.
func (r *routes) keep(principal, list string, to map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]*table{}
	}
	t := r.of[principal]
	if t == nil {
		t = &table{lists: map[string]map[string]string{}}
		r.of[principal] = t
	}
	more := weight(to) - weight(t.lists[list])
	t.lists[list] = to
	t.bytes, r.bytes = t.bytes+more, r.bytes+more
	r.use(t)
	for r.bytes > cmp.Or(r.most, maxRoutes) && len(r.of) > 1 {
		oldest := ""
		for name, other := range r.of {
			if other != t && (oldest == "" || other.used < r.of[oldest].used) {
				oldest = name
			}
		}
		r.bytes -= r.of[oldest].bytes
		delete(r.of, oldest)
	}
}

// weight returns the approximate size of a list in bytes.
func weight(to map[string]string) (bytes int) {
	const entry = 64
	for key := range to {
		bytes += entry + len(key)
	}
	return bytes
}

// use records that a caller's table is in use. The caller must hold the mutex.
func (r *routes) use(t *table) {
	r.clock++
	t.used = r.clock
}

// prompt returns the alias of the server that listed a prompt to a caller.
func (r *routes) prompt(principal, name string) (alias string, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.of[principal]; t != nil {
		r.use(t)
		alias, found = t.lists["prompts"]["prompt "+name]
	}
	return alias, found
}

// resource returns the alias of the server that listed a resource, or a template for the resource, to a caller.
func (r *routes) resource(principal, uri string) (alias string, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of[principal]
	if t == nil {
		return "", false
	}
	r.use(t)
	if alias, found = t.lists["resources"]["uri "+uri]; found {
		return alias, true
	}
	templates := t.lists["resourceTemplates"]
	if alias, found = templates["template "+uri]; found {
		return alias, true
	}
	// If several templates match, use the one with the longest prefix before its first variable.
	best, longest := "", -1
	for key, alias := range templates {
		fixed, _, _ := strings.Cut(strings.TrimPrefix(key, "template "), "{")
		if strings.HasPrefix(uri, fixed) && len(fixed) > longest {
			best, longest = alias, len(fixed)
		}
	}
	return best, longest >= 0
}
