package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/supply/draft"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

// toolArgument returns the first argument, which is the name of a tool. Without arguments, it returns the agent's only
// tool.
func toolArgument(m *manifest.Manifest, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	a := m.Agent()
	if len(a.Tools) == 1 {
		return gateway.ServedName(a, &a.Tools[0]), nil
	}
	return "", usage("to list the tools, run: ambit tools "+diag.ShellWord(m.Path),
		"name the tool, because %s has %s", diag.Quote(cmp.Or(a.Name, a.ID)), count(len(a.Tools), "tool"))
}

// serverNamed returns the alias of the server that the user asked for. The parameter asked can be the server's alias,
// the server's id in the catalogue, or the last part of either. If it does not match exactly one server, serverNamed
// returns it unchanged.
func serverNamed(h home.Home, a *agent.Agent, asked string) string {
	aliases := each(a.Servers, func(s agent.Server) string { return s.Alias })
	for _, q := range a.Requirements {
		if !slices.Contains(aliases, q.Server) {
			aliases = append(aliases, q.Server)
		}
	}
	if slices.Contains(aliases, asked) {
		return asked
	}
	is := func(id string) bool { return id == asked || strings.HasSuffix(id, "/"+asked) }
	found := slices.DeleteFunc(aliases, func(alias string) bool { return !is(alias) })
	if c, err := catalog.Open(h); err == nil && len(found) == 0 {
		for i := range a.Servers {
			ref, err := pack.Identify(a.Servers[i])
			ofServer := func(id string) bool {
				return is(id) && c.Entries[id].Package.Name == ref.Name && c.Entries[id].Package.Kind == string(ref.Kind)
			}
			if err == nil && slices.ContainsFunc(c.IDs(), ofServer) {
				found = append(found, a.Servers[i].Alias)
			}
		}
	}
	if len(found) != 1 {
		return asked
	}
	return found[0]
}

// completeID returns the id of the server in the catalogue with the given short name, which is the last part of the id.
// If the catalogue has no such server, completeID returns the name unchanged. If it has several, completeID returns an
// error that lists their ids.
func completeID(known *catalog.Catalog, name string) (string, error) {
	id, _, err := draft.Find(known, name)
	if _, ok := errors.AsType[*draft.AmbiguousError](err); ok {
		return "", no("give the whole id of the server", "%w", err)
	}
	return cmp.Or(id, name), nil
}

// keyNamed returns the id of the API key with this id, or of the valid API key with this name. If no key matches,
// keyNamed returns the argument unchanged.
func keyNamed(ctx context.Context, keys *identity.APIKeys, asked string) (string, error) {
	list, err := keys.List(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, k := range list {
		switch {
		case k.ID == asked:
			return asked, nil
		case k.Name == asked && keyState(k) == "good":
			found = append(found, k.ID)
		}
	}
	switch len(found) {
	case 0:
		return asked, nil
	case 1:
		return found[0], nil
	}
	return "", no("use one of the ids "+strings.Join(found, ", "), "%s are named %s", count(len(found), "key"), diag.Quote(asked))
}

// readKeyNames reads the names of the API keys, for withKeyName. If they cannot be read, withKeyName returns principals
// without names.
func (t *terminal) readKeyNames(ctx context.Context, b *store.Store) {
	list, err := identity.NewAPIKeys(b.Authority).List(ctx)
	if err != nil {
		return
	}
	t.keyNames = map[string]string{}
	for _, k := range list {
		t.keyNames["key:"+k.ID] = k.Name
	}
}

// withKeyName formats a principal for display. If the principal is an API key, the name of the key follows in
// parentheses.
func (t *terminal) withKeyName(principal string) string {
	if name := t.keyNames[principal]; name != "" {
		return principal + " (" + name + ")"
	}
	return principal
}
