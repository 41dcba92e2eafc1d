// Package agents holds the agents that ship with ambit: the three Matrix
// agents default, neo and forge, one worked example for every dialect and
// kind, and a small valid starting point for each dialect.
package agents

import (
	"cmp"
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Files contains the manifests, and the files that each example needs.
//
//go:embed *.json examples starters
var Files embed.FS

// Find returns the path in Files of the shipped agent with that name: default, or the
// folder or file name of an example.
func Find(name string) (string, bool) {
	for _, file := range []string{name + ".json", "examples/" + name + ".json", "examples/" + name + "/findagent.json", "examples/" + name + "/agent.toml"} {
		// An invalid name, such as ../x, is not a valid path either.
		if fs.ValidPath(file) && !strings.Contains(name, "/") {
			if _, err := fs.Stat(Files, file); err == nil {
				return file, true
			}
		}
	}
	return "", false
}

// Names lists the shipped agents.
func Names() []string {
	var names []string
	for _, dir := range []string{".", "examples"} {
		entries, err := Files.ReadDir(dir)
		if err != nil {
			continue // both are embedded: a build without them does not compile
		}
		for _, e := range entries {
			name := strings.TrimSuffix(e.Name(), path.Ext(e.Name()))
			if _, ok := Find(name); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Starter returns the path in Files of a dialect's starting point. Starting points are
// nested too deeply for the daemon to load them as agents.
func Starter(dialect string) string {
	file := map[string]string{"covenant": "agent.toml", "findagent": "findagent.json"}[dialect]
	return path.Join("starters", dialect, cmp.Or(file, "agent.json"))
}
