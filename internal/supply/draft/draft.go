// Package draft assembles a manifest from a few answers.
//
// The answers contain only the decisions that a person must make. The rest comes from the catalogue. For each tool
// server, the catalogue contains the package, its digest and the side-effect class of every tool. The servers of a
// new agent are therefore pinned from the start. The defaults are safe. An http tool that changes something needs
// approval. A credential is sent to one host only. A program has network access only if the answers allow it.
//
// The result is validated like any other manifest. If there are problems, all of them are reported and no manifest is
// returned.
package draft

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

// Draft holds the answers. The dialect determines which fields are used.
type Draft struct {
	// LoopbackHTTP allows hosts on this machine, for development.
	LoopbackHTTP bool

	Dialect     agent.Dialect
	Name        string
	Description string // used only for Matrix and FindAgent

	// Servers lists catalogue ids, either complete or shortened to the part after the last slash. It is used for
	// Matrix and GPARS.
	Servers []string
	// Allow lists the allowed side-effect classes (for Matrix) or scopes (for GPARS). If Allow is empty, only "read" is
	// allowed.
	Allow []string

	// Runtime, Entry and Network are used for Covenant.
	Runtime, Entry, Network string
	// Requires lists the capabilities that the caller must have. It is used for Covenant.
	Requires []string

	// Prompt, Examples and the fields below are used for FindAgent.
	Prompt      string
	Examples    []string
	HTTP        []string // NAME=METHOD URL
	Templates   []string // NAME=TEXT
	Credentials []string // REF=HOST
}

// Problems is the error for a draft that does not produce a valid manifest. It contains the problems in the answers,
// or the invalid manifest with its diagnostics.
type Problems struct {
	Answers  []string
	Manifest *manifest.Manifest
}

func (p *Problems) Error() string {
	if len(p.Answers) > 0 {
		return strings.Join(p.Answers, "; ")
	}
	return p.Manifest.Errors()[0].Message
}

// File is a file to write to the folder of the manifest.
type File struct {
	Name string
	Text string
}

// Result is a valid manifest. If the manifest refers to a program, Files contains that program.
type Result struct {
	Text     []byte
	Manifest *manifest.Manifest
	Files    []File
}

// Make assembles the manifest. It looks up tool servers in the given catalogue.
func (d *Draft) Make(known *catalog.Catalog) (*Result, error) {
	var wrong []string
	r := &Result{}
	switch d.Dialect {
	case agent.Matrix:
		r.Text, wrong = d.matrix(known)
	case agent.GPARS:
		r.Text, wrong = d.gpars(known)
	case agent.Covenant:
		r.Text, r.Files = d.covenant()
	case agent.FindAgent:
		r.Text, wrong = d.findagent()
	default:
		wrong = []string{"unknown dialect " + diag.Quote(string(d.Dialect))}
	}
	if len(wrong) > 0 {
		return nil, &Problems{Answers: wrong}
	}
	file := "agent.json"
	if d.Dialect == agent.Covenant {
		file = "agent.toml"
	}
	var err error
	if r.Manifest, err = manifest.Parse(file, r.Text, manifest.Options{Dialect: d.Dialect, LoopbackHTTP: d.LoopbackHTTP}); err != nil {
		return nil, &Problems{Manifest: r.Manifest}
	}
	return r, nil
}

// AmbiguousError is the error for a short name that several servers of the catalogue have.
type AmbiguousError struct {
	Name string
	IDs  []string // the ids of the servers
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the catalogue has %d servers named %s: use %s",
		len(e.IDs), diag.Quote(e.Name), diag.Words(e.IDs, "or"))
}

// Find looks up a server by its id, or by the last part of its id. If several ids end with this part, the error is an
// [AmbiguousError].
func Find(known *catalog.Catalog, name string) (id string, e *catalog.Entry, err error) {
	if e := known.Entries[name]; e != nil {
		return name, e, nil
	}
	var short, found []string
	for _, id := range known.IDs() {
		last := id[strings.LastIndexByte(id, '/')+1:]
		if last == name {
			found = append(found, id)
		}
		short = append(short, last)
	}
	switch len(found) {
	case 0:
	case 1:
		return found[0], known.Entries[found[0]], nil
	default:
		return "", nil, &AmbiguousError{name, found}
	}
	hint := diag.DidYouMean(name, short)
	if hint == "" {
		hint = "to list the servers, run: ambit catalog list"
	}
	return "", nil, fmt.Errorf("the catalogue has no server %s: %s", diag.Quote(name), hint)
}

func document(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // encoding v never fails
	}
	return []byte(b.String())
}

// words splits each item at commas. It drops empty words and duplicates.
func words(list []string) []string {
	all := []string{}
	for _, item := range list {
		for _, w := range strings.Split(item, ",") {
			if w = strings.TrimSpace(w); w != "" && !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}
