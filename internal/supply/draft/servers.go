package draft

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/gpars"
	"github.com/ambit-run/ambit/internal/manifest/matrix"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// server is a catalogue entry with its catalogue id, and with the name that the draft uses for the server.
type server struct {
	name, id string
	*catalog.Entry
}

// servers looks up the servers of the draft in the catalogue. It returns one message for each unknown name, or a
// single message if the draft lists no servers.
func (d *Draft) servers(known *catalog.Catalog, dialect string) (list []server, wrong []string) {
	names := words(d.Servers)
	if len(names) == 0 {
		wrong = append(wrong, "a "+dialect+
			" agent needs a tool server: use --server to choose one from the catalogue, as in --server filesystem")
	}
	for _, name := range names {
		id, e, err := Find(known, name)
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		list = append(list, server{name, id, e})
	}
	return list, wrong
}

// matrix returns a Matrix manifest. The work folder of each server is the folder in which the agent is started.
func (d *Draft) matrix(known *catalog.Catalog) (text []byte, wrong []string) {
	m := matrix.AgentManifest{
		SchemaVersion: 1, Agent: "matrix://agent/" + d.Name, Description: d.Description,
		AllowedSideEffects: words(d.Allow), Servers: []matrix.ServerEntry{},
	}
	if len(m.AllowedSideEffects) == 0 {
		m.AllowedSideEffects = []string{"read"}
	}
	servers, wrong := d.servers(known, "Matrix")
	for _, chosen := range servers {
		id, e := chosen.id, chosen.Entry
		s := matrix.ServerEntry{
			Alias: id[strings.LastIndexByte(id, '/')+1:], Transport: "stdio",
			PackageDigest: e.Package.Digest, Version: e.Package.Version,
		}
		switch e.Package.Kind {
		case catalog.NPM:
			s.Command, s.Args = "npx", []string{"-y", e.Package.Name + "@" + e.Package.Version}
		case catalog.PyPI:
			s.Command, s.Args = "uvx", []string{e.Package.Name + "==" + e.Package.Version}
		default:
			wrong = append(wrong,
				diag.Quote(chosen.name)+" is part of ambit, so a Matrix manifest cannot pin it: create a GPARS agent instead")
			continue
		}
		for _, a := range e.Args {
			s.Args = append(s.Args, strings.ReplaceAll(a, "{work}", "."))
		}
		for _, v := range slices.Sorted(maps.Keys(e.Env)) {
			s.Env = append(s.Env, v+"="+strings.ReplaceAll(e.Env[v], "{work}", "."))
		}
		for _, tool := range slices.Sorted(maps.Keys(e.Tools)) {
			about := strings.ReplaceAll(tool, "_", " ")
			s.Tools = append(s.Tools, matrix.ToolEntry{Name: tool, Description: about, SideEffectClass: string(e.Tools[tool])})
		}
		m.Servers = append(m.Servers, s)
	}
	return document(m), wrong
}

func (d *Draft) gpars(known *catalog.Catalog) (text []byte, wrong []string) {
	m := gpars.Manifest{ID: "org:local/agent:" + d.Name, Version: "0.1.0", RequiredMCPServers: []gpars.ServerEntry{}}
	servers, wrong := d.servers(known, "GPARS")
	asked := words(d.Allow)
	used := map[string]bool{}
	for _, e := range servers {
		need := gpars.ServerEntry{ServerID: e.id, Version: "^" + e.Version, PermissionScopes: []string{}}
		for _, scope := range slices.Sorted(maps.Keys(e.Scopes)) {
			if slices.Contains(asked, scope) || len(asked) == 0 && scope == "read" {
				need.PermissionScopes = append(need.PermissionScopes, scope)
				used[scope] = true
			}
		}
		if len(need.PermissionScopes) == 0 {
			scopes := diag.Words(slices.Sorted(maps.Keys(e.Scopes)), "or")
			wrong = append(wrong, fmt.Sprintf("with --allow, choose the scopes that the agent needs on server %s: %s",
				e.name, scopes))
		}
		m.RequiredMCPServers = append(m.RequiredMCPServers, need)
	}
	for _, scope := range asked {
		if !used[scope] {
			wrong = append(wrong, fmt.Sprintf("none of the agent's servers has the scope %s", diag.Quote(scope)))
		}
	}
	return document(m), wrong
}
