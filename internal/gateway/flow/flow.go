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
// People who are asked too often approve without reading. Therefore, these cases are no reason for doubt:
//
//   - A word only begins like a verb, or a verb is part of an address, a path or the name of a program. Programs print
//     such words, and requests do not consist of them ([inflected], [partOf]).
//   - The result of a call with an effect repeats whole lines of the arguments. The agent already had these lines
//     (dropEchoes).
//   - A verb is inside a text that the agent quotes. A request to quote the text would be outside of it (extend).
//   - A tool adds a contact, such as a telephone number, to an address book. The contact stays untrusted, so it is in
//     doubt when another call uses it (addsContact, wrote).
//   - A verb only states what happens, or a message repeats a word of English text that is a verb in another language
//     (thirdPerson, reportsProgress, certainlyEnglish).
//   - A call used the value before any text contained it, and no text asks for the action (introduced).
//   - A call answers the author of a text with words from the same text. The author knows these words
//     (acrossSources).
//
// In all these cases, a destination that occurs only in untrusted text is still in doubt.
//
// Work is linear in the size of a result or call, and memory is bounded. If the limit is reached, the oldest text is
// forgotten. From then on, decisions are strict: a destination or identifier without a known origin is treated as
// untrusted, so that long harmless text cannot push an attacker's text out of the memory.
//
// The package does not understand natural language. It knows verbs of a few languages (see words.go). In all other
// languages, every occurrence of a value is treated as a request to use the value.
package flow

import (
	"bytes"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// The limits of a memory and its sessions. All sizes are bytes.
const (
	maxMemory   = 6 << 20 // untrusted text with its index
	maxText     = 3 << 20 // the text alone
	maxSession  = 2 << 20 // trusted values of one session
	maxSessions = 64
	// maxPrincipals is the maximum number of principals whose memories a process keeps.
	maxPrincipals = 256
	// DefaultWindow is how long text affects decisions after an agent of the principal has read it.
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
	mu     sync.Mutex
	window time.Duration
	blocks []*block
	size   int
	tokens tokenFilter
	view   view.View // a buffer for normalized texts
	// written contains the values that agents copied from untrusted text into notes, files and the like, see
	// Session.wrote.
	written  keySet
	sessions map[string]*Session
	// forgot is when text was last removed to free memory. expired is when text was last removed because of its age.
	forgot, expired time.Time
}

// Memories holds the memory of each principal. All gateways of a process share one Memories.
type Memories struct {
	mu     sync.Mutex
	window time.Duration
	of     map[string]*held
	// lost is when a principal's memory was last dropped to free memory.
	lost time.Time
}

type held struct {
	*Memory
	used time.Time
}

// NewMemories returns an empty set of memories. Untrusted text affects decisions for the duration of window.
func NewMemories(window time.Duration) *Memories {
	return &Memories{window: window, of: map[string]*held{}}
}

// Window returns how long untrusted text affects decisions.
func (ms *Memories) Window() time.Duration { return ms.window }

// Of returns the memory of a principal. If there are too many principals, Of drops the least recently used memory. For
// the duration of the window, every new memory is then strict, because its principal may have had the dropped memory.
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

// NewMemory returns an empty memory. Text affects decisions for the duration of window.
func NewMemory(window time.Duration) *Memory {
	return &Memory{window: window, sessions: map[string]*Session{}}
}

// Session is the memory together with the values that one session trusts.
type Session struct {
	m       *Memory
	started time.Time
	used    time.Time
	// attested contains the fields of structured results. own contains the values that come from the user. approved
	// contains the values that a person approved, each for one tool and argument. It also contains the values that calls
	// introduced, each for one name of an argument, and the parts of their paths.
	attested, own, approved keySet
	// sources contains the calls whose results contained the attested values. keySet.from refers to them by index plus
	// 1.
	sources []Source
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
	s := &Session{m: m, started: now, used: now}
	m.sessions[key] = s
	return s
}

// Preview returns a session that trusts no values. The memory does not keep the session.
func (m *Memory) Preview(now time.Time) *Session { return &Session{m: m, started: now, used: now} }

// Forget makes the memory strict, as if it had dropped text at the given time. The gateway calls Forget if an agent
// read text that the memory does not contain, for example in a process that was killed.
func (m *Memory) Forget(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.After(m.forgot) {
		m.forgot = at
	}
}

// unlock unlocks the memory. After a panic, the memory may be inconsistent, so unlock empties it. Decisions are then
// strict.
func (m *Memory) unlock(now time.Time) {
	defer m.mu.Unlock()
	if value := recover(); value != nil {
		m.blocks, m.size, m.tokens, m.view, m.forgot = nil, 0, tokenFilter{}, view.View{}, now
		panic(value)
	}
}

// prune removes text that is older than the window, and the oldest text if the memory is too large.
func (m *Memory) prune(now time.Time) {
	for len(m.blocks) > 0 && m.blocks[0].time().Before(now.Add(-m.window)) {
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
	if m.blocks = m.blocks[1:]; len(m.blocks) == 0 {
		m.tokens = tokenFilter{}
	}
}

// strict reports whether text was removed that could still affect the session.
func (s *Session) strict(now time.Time) bool {
	m := s.m
	return !m.forgot.IsZero() && m.forgot.After(now.Add(-m.window)) || m.expired.After(s.started)
}

// read adds running texts to the memory. A nil text separates objects, such as two mails; texts without nil between
// them belong to the same object.
func (m *Memory) read(src Source, texts [][]byte) {
	left := maxText // the beginning of a longer result would be removed at once
	first := len(texts)
	for first > 0 && left >= len(texts[first-1]) {
		first--
		left -= len(texts[first])
	}
	if first > 0 {
		m.forgot = src.Time
		first--
	}
	begins := true
	for i, text := range texts[first:] {
		if i == 0 && len(text) > left {
			text = text[len(text)-left:]
		}
		if len(text) > 0 {
			m.add(&src, text, begins)
		}
		begins = len(text) == 0
	}
	if cap(m.view.Text) > maxKept {
		m.view = view.View{}
	}
	m.prune(src.Time)
}

// maxKept is the maximum size of a buffer that is kept for the next result.
const maxKept = 1 << 20

// add adds a text to the memory, and the texts that it contains in encoded form. If begins is set, the text is the
// first of an object.
func (m *Memory) add(src *Source, text []byte, begins bool) {
	l := lexer{text: normal(text, &m.view)}
	b := m.current(len(l.text))
	m.size -= b.size()
	if begins || len(b.sources) == 0 {
		b.from(src)
	}
	long, word, part := false, 0, false
	for {
		space := b.free()
		if space == nil {
			full := b
			m.size += full.size()
			tail, size := full.tail()
			b = m.grow(len(l.text) - l.at + size)
			m.size -= b.size()
			b.from(src)
			b.repeat(full, tail)
			space = b.free()
		}
		n := l.next(space)
		if n == 0 {
			break
		}
		for word <= l.from {
			for wordBytes[l.text[word]] == endsWord && word < l.from {
				word++
			}
			if word, part = partOf(l.text, word); word <= l.from {
				word++
			}
		}
		b.add(n, l.hash, part)
		m.tokens.add(l.hash)
		long = long || n >= minEncoded
	}
	m.size += b.size()
	if long {
		for _, hidden := range decoded(text) {
			m.add(src, hidden, true)
		}
	}
}

// current returns the block to which the next text is added. If there is no block, it makes one for the given size.
func (m *Memory) current(size int) *block {
	if n := len(m.blocks); n > 0 {
		return m.blocks[n-1]
	}
	return m.grow(size)
}

// grow appends a block for a text of the given size. In a small memory the blocks are small.
func (m *Memory) grow(size int) *block {
	b := newBlock(max(size, m.size/4))
	m.blocks = append(m.blocks, b)
	m.size += b.size()
	return b
}

// trust adds values to one of the session's sets. If the sets are full, trust empties all of them first, and the
// removed values then have no known origin.
func (s *Session) trust(set *keySet, from uint16, keys ...uint64) {
	for _, k := range keys {
		if s.attested.size()+s.own.size()+s.approved.size() > maxSession/2 {
			s.attested, s.own, s.approved, s.sources = keySet{}, keySet{}, keySet{}, nil
			from = 0
		}
		set.add(k, from)
	}
}

// attest adds the fields of a result to the attested values. If the result also contains running text, the fields keep
// a reference to their call, because a field can then describe the author of the text. A result without running text,
// such as a list of contacts, is the user's data.
func (s *Session) attest(src Source, shape *shape) {
	from := uint16(0)
	if len(shape.atoms) > 0 && shape.hasText() {
		if len(s.sources) < maxSources {
			s.sources = append(s.sources, src)
		}
		from = uint16(len(s.sources))
	}
	s.trust(&s.attested, from, shape.atoms...)
	for _, value := range shape.values {
		if host := hostOf(value); host != nil {
			s.trust(&s.attested, from, hostKey(host))
		}
	}
}

// maxSources is the maximum number of calls to which the attested values of a session refer. All later calls are
// treated as one call.
const maxSources = 2000

// keySet is a set of non-zero keys, as a hash table with open addressing. The length of the table is a power of two.
type keySet struct {
	table []uint64
	from  []uint16 // for each key, the index plus 1 of its call in Session.sources; 0 if its call does not matter
	n     int
}

func (s *keySet) size() int { return 10 * len(s.table) }

// slot returns the index of a key in the table, or the index at which the key can be inserted.
func (s *keySet) slot(key uint64) int {
	mask := len(s.table) - 1
	for i := int(key>>1) & mask; ; i = (i + 1) & mask {
		if k := s.table[i]; k == 0 || k == key {
			return i
		}
	}
}

func (s *keySet) has(key uint64) bool { return s.n > 0 && key != 0 && s.table[s.slot(key)] == key }

// add adds a key that comes from the call with the index from. A key that is added again keeps its first call. If from
// is 0, the key loses its call.
func (s *keySet) add(key uint64, from uint16) {
	if key == 0 {
		return
	}
	if s.has(key) {
		if from == 0 {
			s.from[s.slot(key)] = 0
		}
		return
	}
	if s.n*4 >= len(s.table)*3 {
		old := *s
		s.table, s.from = make([]uint64, max(16, 2*len(old.table))), make([]uint16, max(16, 2*len(old.table)))
		for i, k := range old.table {
			if k != 0 {
				at := s.slot(k)
				s.table[at], s.from[at] = k, old.from[i]
			}
		}
	}
	at := s.slot(key)
	s.table[at], s.from[at] = key, from
	s.n++
}

// Observe adds the result of a call to the memory and the session. The result is that of an MCP tools/call.
func (s *Session) Observe(t *Tool, arguments []byte, result []byte, src Source) {
	leaves := t.leaves(arguments)
	o := s.origin(t, leaves, src.Time)
	lists := t.lists() || t.queries() || hasPart(t.Name, tabular) && !hasPart(t.Name, written)
	shape := split(result, o.opaque, lists, !lists && hasPart(t.Name, authored))
	defer shape.free()
	if t.Effect && !t.fetching {
		shape.dropEchoes(leaves)
		if t.verbs&creating != 0 && !o.printed && !shape.opaque {
			shape.createdID(leaves)
		}
	}
	s.m.mu.Lock()
	defer s.m.unlock(src.Time)
	shape.distrust(&s.m.written, &o)
	s.attest(src, &shape.shape)
	s.m.read(src, shape.texts)
	if shape.cut {
		s.m.forgot = src.Time
	}
}

// Read adds a text to the memory that is not the result of a tool, such as a resource, a prompt or the message of a
// refusal.
func (s *Session) Read(text []byte, src Source) {
	s.m.mu.Lock()
	defer s.m.unlock(src.Time)
	s.m.read(src, [][]byte{text})
}

// Made records that a call was made. If the agents of the principal have not read any untrusted text yet, the arguments
// come from the user, so Made trusts them. Otherwise Made records the values that the call copies from untrusted text.
func (s *Session) Made(t *Tool, arguments []byte, now time.Time) {
	leaves := t.leaves(arguments)
	s.m.mu.Lock()
	defer s.m.unlock(now)
	if !s.trusts(now) {
		if t.Effect {
			s.wrote(t, leaves)
		}
		s.introduced(t, leaves, now)
		return
	}
	for i := range leaves {
		l := &leaves[i]
		// An attested value is not added to own, because an attacker may have chosen it.
		if key := l.key(); !s.attested.has(key) {
			s.trust(&s.own, 0, key)
		}
		for _, address := range addresses(l.value) {
			s.trust(&s.own, 0, hostKey(hostOf(address)))
		}
		if l.role == path {
			s.trustParts(l.value)
		}
	}
}

// introduced records each short value of a call if no text contains the value in any form. The user or the model chose
// it, so in an argument with the same name it counts as a field, even if a text repeats it later.
func (s *Session) introduced(t *Tool, leaves []leaf, now time.Time) {
	if s.strict(now) {
		return
	}
	for i := range leaves {
		l := &leaves[i]
		if l.role != destination && l.role != identifier && (l.role != other || secretNames[l.name]) ||
			len(l.value) > maxAtom {
			continue
		}
		d := &decision{Session: s, tool: t, steps: maxSteps}
		if len(d.occurrences(l.words(), true)) == 0 && !d.composed(l, l.value, true) && !d.disguised(l) && d.steps > 0 {
			s.trust(&s.approved, 0, introductionKey(l.name, l.value))
		}
	}
}

// introductionKey identifies a value and the name of its argument.
func introductionKey(name string, value []byte) uint64 {
	w := wordsOf([]byte("introduced " + name))
	w.text = append(append(w.text, 0), value...)
	return w.key()
}

// partKey identifies a file name or a folder that trustParts records.
func partKey(path []byte) uint64 { return introductionKey("a part of a path", path) }

// trustParts records the name of a file and its parent folders. An agent that works on a file also uses these names, for
// example to commit the file.
func (s *Session) trustParts(path []byte) {
	at := bytes.LastIndexAny(path, `/\`)
	s.trust(&s.approved, 0, partKey(path[at+1:]))
	for n := 0; n < maxParents && at > 0; n++ {
		path = path[:at]
		if !systemPath.Match(append(bytes.Clone(path), '/')) {
			s.trust(&s.approved, 0, partKey(path))
		}
		at = bytes.LastIndexAny(path, `/\`)
	}
}

// maxParents is the maximum number of parent folders of a path that a session trusts.
const maxParents = 16

// Trusts reports whether the arguments of a call made now come from the user. They do if no untrusted text was read
// before.
func (s *Session) Trusts(now time.Time) bool {
	s.m.mu.Lock()
	defer s.m.unlock(now)
	return s.trusts(now)
}

func (s *Session) trusts(now time.Time) bool {
	s.m.prune(now)
	return len(s.m.blocks) == 0 && !s.strict(now)
}

// Approve records that a person approved a call. From then on, the same value in the same argument of the tool is not
// in doubt.
func (s *Session) Approve(t *Tool, arguments []byte) {
	leaves := t.leaves(arguments)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, l := range leaves {
		s.trust(&s.approved, 0, t.approvalKey(l))
	}
}
