// Package draft assembles a manifest from a few answers.
//
// It asks only for what a person must decide and takes the rest from the catalogue:
// tool servers come with their package, its digest and the class of every tool, so a
// new agent is pinned from the start. The defaults are safe: an http tool that changes
// something needs approval, a credential is sent to one host, and a program has no
// network unless the answers allow it.
//
// The result is validated like any manifest. A draft with a problem returns every
// problem and no manifest.
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

// Draft holds the answers. The dialect decides which fields are used.
type Draft struct {
	Dialect     agent.Dialect
	Name        string
	Description string // for Matrix and FindAgent

	// Servers are ids of the catalogue, whole or only their last part, for Matrix and
	// GPARS.
	Servers []string
	// Allow are the side-effect classes of Matrix or the scopes of GPARS. The default
	// is all harmless ones.
	Allow []string

	// Runtime, Entry, Network and Requires are for Covenant. Requires lists the
	// capabilities that the caller must have.
	Runtime, Entry, Network string
	Requires                []string

	// Prompt, Examples and the tools below are for FindAgent.
	Prompt      string
	Examples    []string
	HTTP        []string // NAME=METHOD URL
	Templates   []string // NAME=TEXT
	Credentials []string // REF=HOST
}

// Problems is the error of a draft that gives no manifest: problems in the answers, or
// the invalid manifest with its diagnostics.
type Problems struct {
	Answers  []string
	Manifest *manifest.Manifest
}

func (p *Problems) Error() string {
	if len(p.Answers) > 0 {
		return strings.Join(p.Answers, "; ")
	}
	for _, d := range p.Manifest.Diagnostics {
		if d.Severity == diag.Error {
			return d.Message
		}
	}
	return "the manifest is not valid"
}

// File is a file beside the manifest.
type File struct {
	Name string
	Text string
}

// Result is a valid manifest, and the program that it names, if any.
type Result struct {
	Text     []byte
	Manifest *manifest.Manifest
	Files    []File
}

// Make assembles the manifest. known contains the tool servers that the draft can
// name.
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
		wrong = []string{"there is no dialect " + diag.Quote(string(d.Dialect))}
	}
	if len(wrong) > 0 {
		return nil, &Problems{Answers: wrong}
	}
	var err error
	if r.Manifest, err = manifest.Parse(fileOf(d.Dialect), r.Text, manifest.Options{Dialect: d.Dialect}); err != nil {
		return nil, &Problems{Manifest: r.Manifest}
	}
	return r, nil
}

func fileOf(d agent.Dialect) string {
	if d == agent.Covenant {
		return "agent.toml"
	}
	return "agent.json"
}

// Find looks up a server by its id, or by the last part of its id.
func Find(known *catalog.Catalog, name string) (id string, e *catalog.Entry, err error) {
	var short []string
	for _, id := range known.IDs() {
		last := id[strings.LastIndexByte(id, '/')+1:]
		if id == name || last == name {
			return id, known.Entries[id], nil
		}
		short = append(short, last)
	}
	hint := diag.DidYouMean(name, short)
	if hint == "" {
		hint = "ambit catalog list shows them"
	}
	return "", nil, fmt.Errorf("the catalogue has no server %s: %s", diag.Quote(name), hint)
}

// document returns a manifest as indented JSON.
func document(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // cannot happen: v consists of strings
	}
	return []byte(b.String())
}

// words splits lists at commas and drops empty items.
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
