package lock

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

// Relocked returns how the lock of m differs from that of the installed agent. The
// author of the new lock decides what the agent's servers are, so every difference
// needs consent, as it does in a run of Locking.
func Relocked(installed, m *manifest.Manifest) ([]manifest.Change, error) {
	was, err := lockOf(installed)
	if err != nil {
		return []manifest.Change{{What: "lock", Detail: fmt.Sprintf("the lock of the installed agent cannot be compared: %v", err)}}, nil
	}
	now, err := lockOf(m)
	if err != nil {
		return nil, err
	}
	var out []manifest.Change
	add := func(format string, args ...any) {
		out = append(out, manifest.Change{What: "lock", Detail: fmt.Sprintf(format, args...)})
	}
	changed := func(of string, c pack.Change) {
		was, is := c.Excerpt()
		add("%s of %s changed: was %s, is %s", c.Field, of, was, is)
	}
	switch {
	case was == nil && now == nil:
		return nil, nil
	case was == nil:
		return lockedFirst(now), nil
	case now == nil:
		add("the installed agent is locked, and this one is not")
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
			changed(of, c)
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(now.Servers)) {
		a, b := was.Servers[alias], now.Servers[alias]
		if a == nil {
			continue // Compare reports that it was added
		}
		of := "server " + diag.Quote(alias)
		if !a.Resolved.Equal(b.Resolved) {
			before, _ := json.Marshal(a.Resolved) // strings always have a JSON form
			after, _ := json.Marshal(b.Resolved)
			changed(of, pack.Change{Field: "the recipe", Old: string(before), New: string(after)})
		}
		if a.Package.Here() == (pack.Build{}) && b.Package.Here() != (pack.Build{}) {
			add("the lock now chooses the dependencies of %s, which this machine chose before", of)
		}
	}
	return out, nil
}

// lockedFirst returns what a lock chooses for an agent that was installed without one.
func lockedFirst(now *pack.LockedAgent) []manifest.Change {
	var out []manifest.Change
	for _, alias := range slices.Sorted(maps.Keys(now.Servers)) {
		p := now.Servers[alias].Package
		if p.Here() == (pack.Build{}) && len(p.Scripts) == 0 {
			continue
		}
		detail := fmt.Sprintf("the lock chooses what is installed for server %s", diag.Quote(alias))
		for _, name := range p.Scripts {
			detail += fmt.Sprintf(", and runs the install scripts of %s", diag.Quote(name))
		}
		out = append(out, manifest.Change{What: "lock", Detail: detail})
	}
	return out
}

// lockOf returns the agent of a manifest as the lock beside it has it; nil if it has none.
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
