package toolserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Shareable returns nil if the servers treat a client in the same way as servers that ambit starts for this client
// alone. Otherwise, the error is the reason. The parameter older is set if the client's protocol has an initialize
// request. The parameter capabilities contains the client's capabilities that servers may use, and work is the working
// folder of the process that asks for the client.
func (m *Manager) Shareable(older bool, capabilities jsontext.Value, work string) error {
	for _, s := range m.order {
		if err := s.shareable(older, capabilities, work); err != nil {
			return fmt.Errorf("server %s: %w", s.alias, err)
		}
	}
	return nil
}

func (s *server) shareable(older bool, capabilities jsontext.Value, work string) error {
	if on, err := s.byCaller(); on || err != nil {
		return errors.New("each caller signs in to it separately")
	}
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return errors.New("it is not running")
	}
	// In the older protocol, the capabilities of the client and the level of log messages belong to the connection.
	if hello := conn.Server(); !hello.Modern && older {
		switch {
		case rawjson.Lookup(hello.Capabilities(), "logging") != nil:
			return errors.New("it sends log messages, and cannot tell its clients apart")
		case !s.remote() && declaresAny(capabilities):
			return errors.New("it can ask its client questions, and cannot tell its clients apart")
		}
	}
	if s.secretsChanged() {
		return errors.New("one of its credentials was changed after it started")
	}
	if !s.remote() && !s.worksAlikeIn(work) {
		return errors.New("it depends on the working folder, and the daemon runs in another one")
	}
	return nil
}

// secretsChanged reports whether the server would get other credentials if it started now.
func (s *server) secretsChanged() bool {
	s.secrets.mu.Lock()
	defer s.secrets.mu.Unlock()
	for name, value := range s.secrets.values {
		if now, _ := s.options.Lookup(name); slices.Contains(s.references(), name) && now != value {
			return true
		}
	}
	return false
}

// references returns the names in the $env: references of the server's settings and arguments.
func (s *server) references() []string {
	names := slices.Clone(s.spec.ArgRefs)
	for _, set := range slices.Concat(s.spec.Env, s.spec.Headers) {
		names = append(names, set.Refs...)
	}
	return names
}

// worksAlikeIn reports whether the local server would use the same files if ambit ran in another working folder.
// Without a sandbox, the server starts in ambit's working folder, so the folders must be equal.
func (s *server) worksAlikeIn(work string) bool {
	here, err := ownFolders()
	there := folders{here.home, realPath(work)}
	if err != nil || here == there {
		return err == nil
	}
	c := s.options.Confine
	if c == nil || slices.Contains(c.Unconfined, s.alias) {
		return false
	}
	texts := slices.Clone(s.spec.Args)
	for _, set := range s.spec.Env {
		texts = append(texts, set.Value)
	}
	if slices.ContainsFunc(texts, namesRelativePath) {
		return false
	}
	access, err := Absolute(c.Access(&s.spec.Server))
	return err == nil && !slices.ContainsFunc(access, func(r agent.Right) bool {
		// A server that may use the working folder starts in it.
		return (r.Kind == agent.CanRead || r.Kind == agent.CanWrite) &&
			(sandbox.Inside(here.work, r.What) || sandbox.Inside(there.work, r.What))
	})
}

// namesRelativePath reports whether a text contains a path whose first part is . or .., so that its meaning depends on
// the working folder.
func namesRelativePath(text string) bool {
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",:;= ", r) })
	return slices.ContainsFunc(parts, func(part string) bool {
		first, _, _ := strings.Cut(part, "/")
		return first == "." || first == ".."
	})
}
