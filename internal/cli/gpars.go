package cli

import (
	"context"
	"path/filepath"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/registry"
	"github.com/ambit-run/ambit/manifest"
)

// resolver finds the servers that the manifests of a folder require.
func (t *terminal) resolver(h home.Home, m *manifest.Manifest) (*registry.Resolver, error) {
	folder, err := filepath.Abs(filepath.Dir(m.Path))
	if err != nil {
		return nil, &failure{code: exitMissing, err: err}
	}
	lock, err := readLock(folder)
	if err != nil {
		return nil, err
	}
	r, err := registry.NewResolver(h, lock)
	if err != nil {
		return nil, no("mend the file that the message names", "%w", err)
	}
	return r, nil
}

// found is what the requirements of an agent come to, none for one that has none.
// Nothing is started.
func (t *terminal) found(ctx context.Context, m *manifest.Manifest) ([]registry.Found, error) {
	if m.Dialect != agent.GPARS {
		return nil, nil
	}
	h, err := home.Find()
	if err != nil {
		return nil, &failure{code: exitMissing, err: err}
	}
	r, err := t.resolver(h, m)
	if err != nil {
		return nil, err
	}
	return r.Resolve(ctx, m.Agent(), registered(h, m)), nil
}

// whole is an agent with the servers and tools that its requirements come to.
func (t *terminal) whole(ctx context.Context, m *manifest.Manifest) (*agent.Agent, error) {
	if m.Dialect != agent.GPARS {
		return m.Agent(), nil
	}
	found, err := t.found(ctx, m)
	if err != nil {
		return nil, err
	}
	for i := range found {
		for _, w := range found[i].Warnings {
			t.notef("%s %s: %s", t.paint(yellow, "warning:"), diag.Printable(found[i].Requirement.Server), diag.Printable(w))
		}
	}
	return registry.Agent(m.Agent(), found), nil
}
