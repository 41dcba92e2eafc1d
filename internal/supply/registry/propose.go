package registry

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
)

// The sources of a proposed class.
const (
	fromCatalogue   = "catalogue"
	fromAnnotations = "annotations"
	fromName        = "name"
	fromInput       = "input"
	fromConnections = "connections"
)

// Proposal is a side-effect class that ambit proposes for a tool of a server.
type Proposal struct {
	Name  string           `json:"name"`
	Class agent.SideEffect `json:"side_effect_class"`
	// From is the source of the class: catalogue, annotations, name, input or connections.
	From string `json:"from"`
	// Review is set if the class is a guess that a person should check.
	Review bool `json:"review"`
}

// Propose proposes a side-effect class for each of a server's tool definitions. The proposals are sorted by tool name.
// The parameter e is the server's catalogue entry, or nil. A class in e takes precedence. Next comes a name that
// implies execution, then the annotations, and then any other name.
func Propose(definitions map[string][]byte, e *catalog.Entry) []Proposal {
	var out []Proposal
	for _, t := range Tools("", definitions, e) {
		p := Proposal{Name: t.Name, Class: t.SideEffect, From: fromAnnotations}
		executes := executing(t.Name)
		switch {
		case e != nil && e.Tools[t.Name] != "":
			p.From = fromCatalogue
		case executes || !annotated(definitions[t.Name]):
			p.From, p.Review, p.Class = fromName, true, classOf(t.Name)
		}
		if p.From != fromCatalogue && p.Class == agent.Read && t.Annotations.OpenWorld == nil && takesURL(definitions[t.Name]) {
			p.From, p.Review, p.Class = fromInput, true, agent.Network
		}
		out = append(out, p)
	}
	return out
}

// takesURL reports whether a tool has an argument for a URL. A tool that reads from a URL connects to other machines.
func takesURL(definition []byte) bool {
	var d struct {
		InputSchema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"inputSchema"`
	}
	return json.Unmarshal(definition, &d) == nil && (d.InputSchema.Properties["url"] != nil || d.InputSchema.Properties["urls"] != nil)
}

// SaysOpenWorld reports whether a tool's annotations declare that the tool interacts with the outside world.
func SaysOpenWorld(definition []byte) bool {
	open := annotationsOf(definition).OpenWorld
	return open != nil && *open
}

// Connecting changes the proposals for a server that connects to other machines. At least one of its tools should have
// the class Network. A tool gets this class if its name ends with search and suggests only reading. If there is still
// no Network tool, and no class comes from the catalogue, the reading tools get the class Network. The reason is that
// names and annotations often describe a network tool only as reading. If no tool reads, the writing tools get the
// class Network. In the last two steps, a tool keeps its class if its annotations declare that it does not interact
// with the outside world.
func Connecting(proposals []Proposal, definitions map[string][]byte) []Proposal {
	proposals = slices.Clone(proposals)
	for i, p := range proposals {
		words := wordsOf(p.Name)
		if p.From == fromName && p.Class == agent.Read && words[len(words)-1] == "search" {
			proposals[i].Class, proposals[i].From = agent.Network, fromConnections
		}
	}
	if slices.ContainsFunc(proposals, func(p Proposal) bool { return p.Class == agent.Network || p.From == fromCatalogue }) {
		return proposals
	}
	out := proposals
	for _, class := range []agent.SideEffect{agent.Read, agent.Write} {
		changed := false
		for i, p := range out {
			open := annotationsOf(definitions[p.Name]).OpenWorld
			if p.Class == class && (open == nil || *open) {
				out[i].Class, out[i].From, out[i].Review, changed = agent.Network, fromConnections, true, true
			}
		}
		if changed {
			break
		}
	}
	return out
}

// annotated reports whether a tool definition contains the hint readOnlyHint.
func annotated(definition []byte) bool {
	return annotationsOf(definition).ReadOnly != nil
}

func annotationsOf(definition []byte) agent.Annotations {
	var d struct {
		Annotations agent.Annotations `json:"annotations"`
	}
	if json.Unmarshal(definition, &d) != nil {
		return agent.Annotations{}
	}
	return d.Annotations
}

var (
	wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)

	readingVerbs = strings.Fields("get list read search find describe show count query lookup view")
	// A tool whose name contains one of these verbs changes something. For example, save_search writes, but
	// images_search only reads.
	changingVerbs = strings.Fields("add create update save set put post send delete remove clear cancel edit write store")
	networkVerbs  = strings.Fields("fetch browse navigate download crawl scrape request http")
	networkWords  = strings.Fields("web website webpage url urls http https internet online")
	// A name that contains one of executingWords implies execution. So does a name that contains one of runningVerbs,
	// if the verb is the whole name or the name also contains a word from the list code.
	executingWords = strings.Fields("exec shell bash zsh sh cmd powershell terminal eval evaluate spawn subprocess")
	runningVerbs   = strings.Fields("run execute start invoke")
	code           = strings.Fields("code command commands script scripts program process js javascript python node")
)

// classOf guesses the side-effect class of a tool from its name. A name without a known word gets the class Write.
func classOf(name string) agent.SideEffect {
	words := wordsOf(name)
	has := func(list []string) bool { return slices.Contains(list, words[0]) }
	switch {
	case executing(name):
		return agent.Shell
	case has(networkVerbs), slices.ContainsFunc(words, func(w string) bool { return slices.Contains(networkWords, w) }):
		return agent.Network
	case has(readingVerbs), words[len(words)-1] == "search" && !slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains(changingVerbs, w)
	}):
		return agent.Read
	}
	return agent.Write
}

// executing reports whether a name implies that the tool executes programs, commands or code. It returns false for a
// name that begins with a verb such as list, because list_commands only reads.
func executing(name string) bool {
	words := wordsOf(name)
	has := func(list []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(list, w) })
	}
	if slices.Contains(readingVerbs, words[0]) {
		return false
	}
	return has(executingWords) || has(runningVerbs) && (len(words) == 1 || has(code))
}

// wordsOf splits a name such as run_command or runCommand into its words.
func wordsOf(name string) []string {
	name = strings.ToLower(wordStart.ReplaceAllString(name, "${1}_${2}"))
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("_-./: ", r) })
	if len(words) == 0 {
		return []string{""}
	}
	return words
}

// EntryFor returns the catalogue entry whose package a server runs, or nil.
func EntryFor(c *catalog.Catalog, s *agent.Server) *catalog.Entry {
	ref, err := pack.Identify(*s)
	if err != nil {
		return nil
	}
	for _, e := range c.Entries {
		if e.Package.Kind == string(ref.Kind) && e.Package.Name == ref.Name {
			return e
		}
	}
	return nil
}
