// Package flow tracks where the values in a call's arguments come from.
//
// An instruction inside a web page, an e-mail or a file can make a model call tools for an attacker. Lists of bad
// phrases miss most of these instructions. The gateway, however, sees every result before every call. So it can notice
// that the account number of a transfer was first seen in a file that another person wrote.
//
// A [Memory] keeps the untrusted text that the agents of one principal have read. A [Session] keeps the values that one
// session may use: short fields of structured results, arguments of calls made before any untrusted text was read, and
// arguments that a person approved. [Session.Observe] splits a result into fields and running text, and
// [Session.Decide] compares the arguments of a call with both. The verdict states only where values come from. The
// gateway decides whether to ask a person.
//
// Work is linear in the size of a result or call, and memory is bounded. If the limit is reached, the oldest text is
// forgotten. From then on a destination or identifier without a known origin counts as untrusted (strict mode), so that
// long harmless text cannot hide what was read before.
//
// The package does not understand natural language. It knows verbs of a few languages (see words.go). In all other
// languages, every occurrence of a value counts as a request to use the value.
package flow

import (
	"sync"
	"time"
)

// The limits of a memory and its sessions. All sizes are bytes.
const (
	maxMemory   = 6 << 20   // size of untrusted text with its index
	maxSession  = 2 << 20   // size of the trusted values of one session
	maxBlock    = 128 << 10 // size of the running text in one block
	maxSessions = 64
	// maxPrincipals is the number of memories in a process.
	maxPrincipals = 256
	atomSize      = 64 // estimated size of one trusted value in a map
	// DefaultWindow is how long untrusted text counts for the agents of a principal.
	DefaultWindow = time.Hour
)

// Source is the call whose result contained a value.
type Source struct {
	// Call is the id of the call. Tool is the name of its tool.
	Call, Tool string
	// Label names the object that was read, such as a file or an address. It may be empty.
	Label string
	Time  time.Time
}

// Memory is the untrusted text that the agents of one principal have read.
type Memory struct {
	mu       sync.Mutex
	window   time.Duration
	blocks   []*block
	size     int
	sessions map[string]*Session
	// forgot is when text was last removed to free memory. expired is when text was last removed because of its age.
	forgot, expired time.Time
}

// Memories holds the memory of each principal. All gateways of a process share it.
type Memories struct {
	mu     sync.Mutex
	window time.Duration
	of     map[string]*held
	// lost is when the memory of a principal was last dropped to free memory.
	lost time.Time
}

type held struct {
	*Memory
	used time.Time
}

// NewMemories returns an empty set of memories. Untrusted text counts for the given time.
func NewMemories(window time.Duration) *Memories {
	return &Memories{window: window, of: map[string]*held{}}
}

// Window returns how long untrusted text counts.
func (ms *Memories) Window() time.Duration { return ms.window }

// Of returns the memory of a principal. If there are too many principals, Of drops the least recently used memory, and
// every new memory is strict for a while.
func (ms *Memories) Of(principal string, now time.Time) *Memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if h := ms.of[principal]; h != nil {
		h.used = now
		return h.Memory
	}
	if len(ms.of) >= maxPrincipals {
		var oldest string
		for k, h := range ms.of {
			if oldest == "" || h.used.Before(ms.of[oldest].used) {
				oldest = k
			}
		}
		delete(ms.of, oldest)
		ms.lost = now
	}
	h := &held{NewMemory(ms.window), now}
	h.forgot = ms.lost
	ms.of[principal] = h
	return h.Memory
}

// NewMemory returns an empty memory. Text counts for the given time.
func NewMemory(window time.Duration) *Memory {
	return &Memory{window: window, sessions: map[string]*Session{}}
}

// Session is the memory together with the values that one session trusts.
type Session struct {
	m       *Memory
	started time.Time
	used    time.Time
	size    int
	// attested contains the fields of structured results. own contains the values of the user. approved contains the values
	// that a person approved, each for one tool and argument.
	attested, own, approved map[uint64]bool
}

// Session returns the session with the given key, and creates it if necessary. If there are too many sessions, the
// memory forgets the least recently used session.
func (m *Memory) Session(key string, now time.Time) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[key]; s != nil {
		s.used = now
		return s
	}
	if len(m.sessions) >= maxSessions {
		var oldest string
		for k, s := range m.sessions {
			if oldest == "" || s.used.Before(m.sessions[oldest].used) {
				oldest = k
			}
		}
		delete(m.sessions, oldest)
	}
	s := &Session{m: m, started: now, used: now, attested: map[uint64]bool{}, own: map[uint64]bool{}, approved: map[uint64]bool{}}
	m.sessions[key] = s
	return s
}

// Forget makes the memory strict, as if it had forgotten text at the given time. The gateway calls it if text was read
// that the memory does not contain, for example by a process that was killed.
func (m *Memory) Forget(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.After(m.forgot) {
		m.forgot = at
	}
}

// prune removes text that no longer counts.
func (m *Memory) prune(now time.Time) {
	for len(m.blocks) > 0 && m.blocks[0].last().Before(now.Add(-m.window)) {
		m.drop()
		m.expired = now
	}
	for m.size > maxMemory && len(m.blocks) > 1 {
		m.drop()
		m.forgot = now
	}
}

func (m *Memory) drop() {
	m.size -= m.blocks[0].size()
	m.blocks[0] = nil
	m.blocks = m.blocks[1:]
}

// strict reports whether text was forgotten that could still matter to the session.
func (s *Session) strict(now time.Time) bool {
	m := s.m
	return !m.forgot.IsZero() && m.forgot.After(now.Add(-m.window)) || m.expired.After(s.started)
}

// read adds running text to the memory.
func (m *Memory) read(src Source, texts [][]byte) {
	for _, text := range texts {
		for len(text) > 0 {
			part := text
			if len(part) > maxBlock/2 {
				part = cutAtSpace(part, maxBlock/2)
			}
			text = text[len(part):]
			b := m.current(len(part))
			m.size -= b.size()
			b.add(src, part)
			m.size += b.size()
		}
	}
	m.prune(src.Time)
}

// current returns the block to which text of the given size is added.
func (m *Memory) current(size int) *block {
	if n := len(m.blocks); n > 0 && len(m.blocks[n-1].text)+size <= maxBlock {
		return m.blocks[n-1]
	}
	b := &block{}
	m.blocks = append(m.blocks, b)
	return b
}

// trust adds values to one of the session's sets. If the sets are full, trust first removes all values. The removed
// values no longer have a known origin.
func (s *Session) trust(set *map[uint64]bool, keys []uint64) {
	for _, k := range keys {
		if k == 0 || (*set)[k] {
			continue
		}
		if s.size += atomSize; s.size > maxSession {
			s.attested, s.own, s.approved = map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
			s.size = atomSize
		}
		(*set)[k] = true
	}
}

// Observe adds the result of a call to the memory. A result is a tools/call result of MCP.
func (s *Session) Observe(t *Tool, arguments []byte, result []byte, src Source) {
	shape := split(result, t.opaque(arguments))
	if t.Effect {
		shape.dropEchoes(t.leaves(arguments))
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.trust(&s.attested, shape.atoms)
	s.m.read(src, shape.texts)
}

// Read adds a text to the memory that is not the result of a tool, such as a resource, a prompt or the message of a
// refusal.
func (s *Session) Read(text []byte, src Source) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.read(src, [][]byte{text})
}

// Made records that a call was made. If the agents of the principal have not read any untrusted text yet, the arguments
// come from the user, so Made trusts them.
func (s *Session) Made(t *Tool, arguments []byte, now time.Time) {
	leaves := t.leaves(arguments)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if !s.trusts(now) {
		return
	}
	for _, l := range leaves {
		s.trust(&s.own, keysOf(l.value))
	}
}

// Trusts reports whether the arguments of a call count as values of the user. They do if no untrusted text was read
// before the call.
func (s *Session) Trusts(now time.Time) bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.trusts(now)
}

func (s *Session) trusts(now time.Time) bool {
	s.m.prune(now)
	return len(s.m.blocks) == 0 && !s.strict(now)
}

// Approve records that a person approved a call. The arguments count as trusted for the same tool and argument.
func (s *Session) Approve(t *Tool, arguments []byte) {
	leaves := t.leaves(arguments)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, l := range leaves {
		s.trust(&s.approved, []uint64{t.approvalKey(l)})
	}
}
