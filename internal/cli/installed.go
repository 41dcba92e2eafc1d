package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
)

// installed returns the manifest of the installed agent with a NAME; empty if there is none.
// Clients start agents by NAME from arbitrary folders, so a file of the same name must not
// take the agent's place: that file is ./NAME. If there is no such file, the slug of an
// agent's name works too.
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

// mayBeName reports whether an argument can be a NAME, and not only a path.
func mayBeName(asked string) bool {
	ext := strings.ToLower(filepath.Ext(asked))
	return asked != "" && !strings.ContainsAny(asked, `/\`) && !strings.HasPrefix(asked, ".") && ext != ".json" && ext != ".toml"
}

// installedAs returns the manifest that a daemon would serve under a NAME from the agents
// folder, or any file that reserves the NAME; empty if there is none.
func installedAs(h home.Home, name string) string {
	if found, err := daemon.List(h.Agents()); err == nil {
		if f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == name }); f != nil {
			return f.Path
		}
	}
	// A file that is no longer a valid manifest, or is in a folder that cannot be read
	// completely, keeps its name: no other file may act under it.
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
