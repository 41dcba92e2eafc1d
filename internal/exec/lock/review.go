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

// Relocked compares the lock file of an installed agent with the lock file in the folder of a new manifest, and
// returns the differences. The lock file decides which packages the agent's servers run. The user must therefore
// accept every difference, as in [Locking.Run].
func Relocked(installed, m *manifest.Manifest, folder string) ([]manifest.Change, error) {
	was, err := lockOf(installed, filepath.Dir(installed.Path))
	if err != nil {
		detail := fmt.Sprintf("the lock file of the installed agent cannot be read: %v", err)
		return []manifest.Change{{What: "lock", Detail: detail}}, nil
	}
	now, err := lockOf(m, folder)
	if err != nil {
		return nil, err
	}
	var out []manifest.Change
	add := func(format string, args ...any) {
		out = append(out, manifest.Change{What: "lock", Detail: fmt.Sprintf(format, args...)})
	}
	changed := func(of string, c pack.Change) {
		was, is := c.Excerpt()
		add("%s of %s changed from %s to %s", c.Field, of, was, is)
	}
	switch {
	case was == nil && now == nil:
		return nil, nil
	case was == nil:
		return lockedFirst(now), nil
	case now == nil:
		add("the installed agent has a lock file, but the new version has none")
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
			continue // the loop above has reported the new server
		}
		of := "server " + diag.Quote(alias)
		if !a.Resolved.Equal(b.Resolved) {
			before, _ := json.Marshal(a.Resolved) // strings can always be encoded as JSON
			after, _ := json.Marshal(b.Resolved)
			changed(of, pack.Change{Field: "the recipe", Old: string(before), New: string(after)})
		}
		if a.Package.Here() == (pack.Build{}) && b.Package.Here() != (pack.Build{}) {
			add("the new lock file determines the installed dependencies of %s; so far, this machine determined them", of)
		}
	}
	return out, nil
}

// lockedFirst returns the changes for an agent that was installed without a lock file, if its new version has a lock
// file.
func lockedFirst(now *pack.LockedAgent) []manifest.Change {
	var out []manifest.Change
	for _, alias := range slices.Sorted(maps.Keys(now.Servers)) {
		p := now.Servers[alias].Package
		if p.Here() == (pack.Build{}) && len(p.Scripts) == 0 {
			continue
		}
		detail := fmt.Sprintf("the lock file determines the installed dependencies of server %s", diag.Quote(alias))
		for _, name := range p.Scripts {
			detail += fmt.Sprintf(", and lets the install scripts of %s run", diag.Quote(name))
		}
		out = append(out, manifest.Change{What: "lock", Detail: detail})
	}
	return out
}

// lockOf returns the agent's entry in the lock file in the manifest's folder. lockOf returns nil if the lock file or
// the entry is missing.
func lockOf(m *manifest.Manifest, folder string) (*pack.LockedAgent, error) {
	lock, err := pack.ReadLock(filepath.Join(folder, pack.LockName))
	if errors.Is(err, pack.LockMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return lock.Agents[m.Agent().ID], nil
}
