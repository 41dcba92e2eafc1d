package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
)

// installed is the manifest of an installed agent; empty if asked is not its
// NAME. Clients start agents by NAME, in folders that hold anybody's files, so a
// file that happens to be called like one must not take its place: it is
// ./NAME. The slug of an agent's name counts where there is no such file.
func installed(asked string) string {
	if !mayBeName(asked) {
		return ""
	}
	h, err := home.Find()
	if err != nil {
		return ""
	}
	if file := installedAs(h, asked); file != "" {
		return file
	}
	if _, err := os.Stat(asked); err == nil {
		return ""
	}
	found, err := daemon.Find(h.Agents())
	if err != nil {
		return ""
	}
	f := daemon.Pick(found, func(f *daemon.Found) bool {
		return f.Manifest != nil && f.Manifest.Agent() != nil && agent.Slug(f.Manifest.Agent().Name) == asked
	})
	if f == nil {
		return ""
	}
	return f.Path
}

// mayBeName tells what can be a NAME from what can only be a path.
func mayBeName(asked string) bool {
	ext := strings.ToLower(filepath.Ext(asked))
	return asked != "" && !strings.ContainsAny(asked, `/\`) && !strings.HasPrefix(asked, ".") && ext != ".json" && ext != ".toml"
}

// installedAs is the manifest that has a NAME in the agents folder; empty if none
// has. It is the one that a daemon would serve under it, if there is one.
func installedAs(h home.Home, name string) string {
	if found, err := daemon.List(h.Agents()); err == nil {
		if f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == name }); f != nil {
			return f.Path
		}
	}
	// A file that is no manifest any more, or that lies in a folder which cannot be
	// read whole, holds its name: nothing from elsewhere takes its place.
	place := filepath.Join(h.Agents(), name)
	for _, file := range []string{
		filepath.Join(place, "agent.toml"), filepath.Join(place, "findagent.json"), filepath.Join(place, name+".json"), place + ".json", place + ".toml",
	} {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}
