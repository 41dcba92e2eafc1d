package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/manifest"
)

// relocked is how the lock of an agent differs from that of the installed one.
// Whoever wrote the new lock says what the agent's servers are, so all of it is
// asked about, as ambit lock does.
func relocked(old, m *manifest.Manifest) ([]manifest.Change, error) {
	was, err := lockOf(old)
	if err != nil {
		return []manifest.Change{{What: "lock", Detail: fmt.Sprintf("that of the installed one cannot be compared: %v", err)}}, nil
	}
	now, err := lockOf(m)
	if err != nil {
		return nil, no(pack.HintOf(err), "%w", err)
	}
	var out []manifest.Change
	add := func(format string, args ...any) {
		out = append(out, manifest.Change{What: "lock", Detail: fmt.Sprintf(format, args...)})
	}
	changed := func(field, of, before, after string) {
		before, after = around(before, after)
		add("%s of %s changed: was %s, is %s", field, of, before, after)
	}
	switch {
	case was == nil && now == nil:
		return nil, nil
	case was == nil:
		return lockedFirst(now), nil
	case now == nil:
		add("the installed one is locked, and this one is not")
		return out, nil
	}
	for _, d := range pack.Compare(was, now) {
		of := "server " + diag.Quote(d.Server)
		if d.Tool != "" {
			of = diag.Quote(d.Tool)
		}
		if d.What != pack.Changed {
			add("%s was %s", of, d.What)
		}
		for _, c := range d.Changes {
			changed(c.Field, of, c.Old, c.New)
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(now.Servers)) {
		a, b := was.Servers[alias], now.Servers[alias]
		if a == nil {
			continue // that it was added is told
		}
		of := "server " + diag.Quote(alias)
		if !a.Resolved.Equal(b.Resolved) {
			before, _ := json.Marshal(a.Resolved) // texts, which have a form in JSON
			after, _ := json.Marshal(b.Resolved)
			changed("the recipe", of, string(before), string(after))
		}
		if a.Package.Here() == (pack.Build{}) && b.Package.Here() != (pack.Build{}) {
			add("the dependencies of %s are chosen by the lock, and were chosen on this machine", of)
		}
	}
	return out, nil
}

// lockedFirst is what a lock chooses for an agent that was installed without one.
func lockedFirst(now *pack.LockedAgent) []manifest.Change {
	var out []manifest.Change
	for _, alias := range slices.Sorted(maps.Keys(now.Servers)) {
		p := now.Servers[alias].Package
		if p.Here() == (pack.Build{}) && len(p.Scripts) == 0 {
			continue
		}
		detail := fmt.Sprintf("what is installed for server %s is chosen by the lock", diag.Quote(alias))
		for _, name := range p.Scripts {
			detail += fmt.Sprintf(", and install scripts of %s run", diag.Quote(name))
		}
		out = append(out, manifest.Change{What: "lock", Detail: detail})
	}
	return out
}

// lockOf is what the lock beside a manifest says of its agent; nil if nothing.
func lockOf(m *manifest.Manifest) (*pack.LockedAgent, error) {
	lock, err := pack.ReadLock(filepath.Join(filepath.Dir(m.Path), pack.LockName))
	if errors.Is(err, pack.LockMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return lock.Agents[m.Agent().ID], nil
}
