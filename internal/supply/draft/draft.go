// Package draft assembles a manifest from a few answers.
//
// It asks for what only a person can say and takes the rest from what ambit
// knows: tool servers come from the catalogue, with their package, its digest and
// every tool with its class, so that a new agent is pinned from its first line.
// What is unsafe by oversight is not offered: an http tool that changes something
// asks a person, a credential goes to one host, a program has no network unless
// that is said.
//
// What it makes is read again like anybody's manifest. A draft with a problem
// gives every problem and no manifest.
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

// Draft is what was answered. Which fields count depends on the dialect.
type Draft struct {
	Dialect     agent.Dialect
	Name        string
	Description string // of Matrix and FindAgent

	// Servers are ids of the catalogue, whole or by their last part. Matrix and
	// GPARS.
	Servers []string
	// Allow are the side-effect classes of Matrix, or the scopes of GPARS; all
	// that are harmless if none are said.
	Allow []string

	// Runtime, Entry and Network are Covenant's, Requires the capabilities that
	// it wants of whoever gives it work.
	Runtime, Entry, Network string
	Requires                []string

	// Prompt, Examples and Tools are FindAgent's.
	Prompt      string
	Examples    []string
	HTTP        []string // NAME=METHOD URL
	Templates   []string // NAME=TEXT
	Credentials []string // REF=HOST
}

// Problems is why there is no manifest: all that is wrong with the answers, or
// the manifest that they give, with its diagnostics.
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
	return "it is not a valid manifest"
}

// File is something that lies beside the manifest.
type File struct {
	Name string
	Text string
}

// Result is a valid manifest, and the program that it names if it is one.
type Result struct {
	Text     []byte
	Manifest *manifest.Manifest
	Files    []File
}

// Make assembles the manifest. Known are the tool servers that can be named.
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

// Find looks a server up by its id, or by the last part of it.
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

// document is a manifest in JSON, for people.
func document(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // it is made of texts
	}
	return []byte(b.String())
}

// words takes lists apart that were written with commas, and empty ones out.
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
