package read

import (
	"path"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Rights contains the rights that a manifest proposes for a tool server.
type Rights struct {
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	Hosts []string `json:"hosts,omitempty"`
	Exec  []string `json:"exec,omitempty"`
}

// Rights reads an object with proposed rights. It returns nil if the value is absent.
func (r *Reader) Rights(v doc.Value) *Rights {
	if !v.Ok() {
		return nil
	}
	o := r.Object(v)
	list := func(key string, kind agent.RightKind) []string {
		return r.Distinct(o.List(key, Optional), func(v doc.Value) bool {
			_, problem, hint := propose(kind, v.Text())
			if problem != "" { // report the problem without the text, which may contain a password
				r.Report(diag.BadRight, v.Place(), hint, "this entry of %s %s", diag.Quote(key), problem)
			}
			return problem == ""
		})
	}
	rights := &Rights{
		Read: list("read", agent.CanRead), Write: list("write", agent.CanWrite),
		Hosts: list("hosts", agent.CanConnect), Exec: list("exec", agent.CanExecute),
	}
	o.Done()
	return rights
}

// Access returns the proposed rights. It returns nil for nil.
func (r *Rights) Access() agent.Access {
	if r == nil {
		return nil
	}
	var access agent.Access
	add := func(kind agent.RightKind, list []string) {
		for _, text := range list {
			right, _, _ := propose(kind, text)
			access = append(access, right)
		}
	}
	add(agent.CanRead, r.Read)
	add(agent.CanWrite, r.Write)
	add(agent.CanConnect, r.Hosts)
	add(agent.CanExecute, r.Exec)
	return access
}

// propose parses a text as a right of the given kind. If the text is not valid, propose returns the problem and a hint.
func propose(kind agent.RightKind, text string) (right agent.Right, problem, hint string) {
	right = agent.Right{Kind: kind, What: path.Clean(text), Reason: "proposed by the manifest"}
	leaves := slices.Contains(strings.Split(text, "/"), "..")
	absolute := len(text) > 1 && text[0] == '/' && text[1] != '/'
	switch kind {
	case agent.CanConnect:
		right.What = agent.ParseHost(text)
		right.Private = agent.LocalHost(right.What)
		if right.What == "" {
			return right, "is not a host", "write NAME or NAME:PORT, without a scheme and without *"
		}
		if right.Private && !strings.Contains(text, ":") {
			return right, "is a local address without a port", "add the port, such as localhost:5432"
		}
	case agent.CanExecute:
		isName := strings.Trim(text, programCharacters) == "" && strings.Trim(text, ".") != ""
		if leaves || !absolute && !isName {
			return right, "is not a program", "write the name of a program, such as git, or an absolute path"
		}
	default:
		relative := text == "." || text == "~" || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "~/")
		if leaves || !absolute && !relative {
			return right, "is not a usable path", "write a path that starts with /, ./ or ~/ and has no .. in it"
		}
	}
	return right, "", ""
}

const programCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+"
