// Package agents contains the agents that ship with ambit: the Matrix agents default, neo and forge, and examples for
// every dialect and every kind of agent. The package also contains a minimal valid manifest for each dialect.
package agents

import (
	"cmp"
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Files contains the manifests and all other files of the shipped agents.
//
//go:embed *.json examples starters
var Files embed.FS

// Find looks up a shipped agent by name and returns the path of its manifest in Files. The name is the name of the
// agent's folder, such as research, or the name of its JSON file without .json, such as neo. The second result reports
// whether the agent exists.
func Find(name string) (string, bool) {
	example := "examples/" + name
	files := []string{name + ".json", example + ".json", example + "/findagent.json", example + "/agent.toml"}
	for _, file := range files {
		// ValidPath rejects names such as "..".
		if fs.ValidPath(file) && !strings.Contains(name, "/") {
			if _, err := fs.Stat(Files, file); err == nil {
				return file, true
			}
		}
	}
	return "", false
}

// Names returns the names of the shipped agents in sorted order.
func Names() []string {
	var names []string
	for _, dir := range []string{".", "examples"} {
		entries, err := Files.ReadDir(dir)
		if err != nil {
			continue // cannot happen: both folders are embedded
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

// Starter returns the path of a dialect's minimal manifest in Files. The daemon does not load these manifests as
// agents, because their folders are nested too deeply.
func Starter(dialect string) string {
	file := map[string]string{"covenant": "agent.toml", "findagent": "findagent.json"}[dialect]
	return path.Join("starters", dialect, cmp.Or(file, "agent.json"))
}
