// Package memory keeps what programs answered, for the same programs to read
// later.
//
// A record belongs to an agent, by the agent's id, and nobody reads it but that
// agent's program and the owner. It is kept only for whoever holds memory.write
// while giving the work, in the transaction that records the call, so after the
// result has passed the guards; a program gets to see records only for whoever
// holds memory.read. What it sees is a file of lines, made for the run: a program
// cannot write to its memory but by answering.
//
// A record lies sealed, bound to its agent and its intent. One that was changed,
// or moved to another agent, cannot be opened: it is told of, and never shown.
//
// Memory is bounded. A text longer than [MaxText] is cut and says so, an agent
// has at most [MaxRecords] records and [MaxBytes] bytes of them, and forgets the
// oldest first. What has outlived its time is not seen any more, and is deleted
// when the next record is kept.
package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// The capabilities that memory needs.
const (
	Read  = "memory.read"
	Write = "memory.write"
)

// The bounds.
const (
	MaxText    = 64 << 10
	MaxSources = 100
	MaxSource  = 2 << 10
	MaxRecords = 1000
	MaxBytes   = 16 << 20
	// DefaultTTL is how long a record is kept, if nobody says otherwise.
	DefaultTTL = 30 * 24 * time.Hour
)

// Record is what a program once answered.
type Record struct {
	// ID is that of the intent which it answered.
	ID string `json:"id"`
	// Time is when, in milliseconds as in the intent's line.
	Time int64 `json:"time"`
	// Issuer is who had given the work.
	Issuer  string   `json:"issuer"`
	Text    string   `json:"text"`
	Sources []string `json:"sources"`
	// Cut says that the answer was longer.
	Cut bool `json:"cut,omitempty"`

	// Expires is when it is forgotten.
	Expires time.Time `json:"-"`
	// Changed says that it cannot be opened; then only its ID is known.
	Changed bool `json:"-"`
}

// Memory is that of all agents of a store.
type Memory struct {
	books *store.Store
	ttl   time.Duration
	now   func() time.Time

	maxRecords, maxBytes int64
}

// Of is the memory in the store of some books. A record is kept for ttl; 0 is
// [DefaultTTL].
func Of(b *store.Store, ttl time.Duration) *Memory {
	return &Memory{books: b, ttl: cmp.Or(ttl, DefaultTTL), now: time.Now, maxRecords: MaxRecords, maxBytes: MaxBytes}
}

// Participant remembers the answers of one agent's program. It takes part in the
// transactions of the agent's gateway.
type Participant struct {
	Memory *Memory
	Agent  *agent.Agent
}

// Begin lets every call pass.
func (Participant) Begin(state.Tx, *call.Call) (*call.Refusal, error) { return nil, nil }

// Record remembers the answer of a call if its caller holds memory.write.
func (p Participant) Record(tx state.Tx, c *call.Call, o call.Outcome) error {
	if o.Refusal != nil || o.Result.IsError || p.Agent.Program == nil || !slices.Contains(c.Held, Write) {
		return nil
	}
	var doc struct {
		Answer struct {
			ID      string   `json:"intent_id"`
			Text    string   `json:"text"`
			Sources []string `json:"sources"`
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(o.Result.Raw, &doc); err != nil || doc.Answer.ID == "" {
		return nil // no program's answer
	}
	return p.Memory.put(tx, p.Agent.ID, bound(Record{
		ID: doc.Answer.ID, Time: p.Memory.now().UnixMilli(), Issuer: c.Principal,
		Text: doc.Answer.Text, Sources: doc.Answer.Sources,
	}))
}

// bound cuts what is too long.
func bound(r Record) Record {
	cut := func(s string, n int) string {
		if len(s) <= n {
			return s
		}
		r.Cut = true
		return diag.Cut(s, n)
	}
	r.Text = cut(r.Text, MaxText)
	if len(r.Sources) > MaxSources {
		r.Sources, r.Cut = r.Sources[:MaxSources], true
	}
	sources := make([]string, len(r.Sources))
	for i, s := range r.Sources {
		sources[i] = cut(s, MaxSource)
	}
	r.Sources = sources
	return r
}

// purpose binds what is sealed to its agent and intent.
func purpose(agentID, id string) string {
	name, err := json.Marshal([]string{agentID, id})
	if err != nil {
		panic(err) // strings always can be
	}
	return "memory " + string(name)
}

const insert = `INSERT INTO memories (agent, id, kept, expires, size, sealed) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (agent, id) DO NOTHING`

// put keeps a record, and makes room for it. An answer that is given again, by an
// idempotency key, is the same record.
func (m *Memory) put(tx state.Tx, agentID string, r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	now := m.now()
	if _, err := tx.Exec(`DELETE FROM memories WHERE agent = $1 AND expires <= $2`, agentID, now.UnixMicro()); err != nil {
		return err
	}
	sealed := m.books.Keys.Seal(purpose(agentID, r.ID), text)
	n, err := tx.Exec(insert, agentID, r.ID, now.UnixMicro(), now.Add(m.ttl).UnixMicro(), int64(len(sealed)), sealed)
	if err != nil || n == 0 {
		return err
	}
	return m.forget(tx, agentID)
}

// forget deletes the oldest records of an agent that has too many.
func (m *Memory) forget(tx state.Tx, agentID string) error {
	for {
		var records, bytes int64
		// A sum is a numeric to PostgreSQL.
		err := tx.Query(`SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM memories WHERE agent = $1`, []any{agentID},
			func(row state.Row) error { return row.Scan(&records, &bytes) })
		if err != nil || records <= m.maxRecords && bytes <= m.maxBytes {
			return err
		}
		oldest := ""
		err = tx.Query(`SELECT id FROM memories WHERE agent = $1 ORDER BY kept, id LIMIT 1`, []any{agentID},
			func(row state.Row) error { return row.Scan(&oldest) })
		if err != nil {
			return err
		}
		if _, err := tx.Exec(`DELETE FROM memories WHERE agent = $1 AND id = $2`, agentID, oldest); err != nil {
			return err
		}
	}
}

// List is what an agent remembers, oldest first.
func (m *Memory) List(ctx context.Context, agentID string) (list []Record, err error) {
	err = m.books.DB.Read(ctx, func(tx state.Tx) error {
		list = nil
		return tx.Query(`SELECT id, expires, sealed FROM memories WHERE agent = $1 AND expires > $2 ORDER BY kept, id`,
			[]any{agentID, m.now().UnixMicro()}, func(row state.Row) error {
				var r Record
				var expires int64
				var sealed []byte
				if err := row.Scan(&r.ID, &expires, &sealed); err != nil {
					return err
				}
				list = append(list, m.open(agentID, r.ID, sealed))
				list[len(list)-1].Expires = time.UnixMicro(expires)
				return nil
			})
	})
	return list, err
}

// open reads one record, or says that it was changed.
func (m *Memory) open(agentID, id string, sealed []byte) Record {
	var r Record
	text, err := m.books.Keys.OpenKept(purpose(agentID, id), sealed)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || r.ID != id {
		return Record{ID: id, Changed: true}
	}
	return r
}

// Lines is what an agent's program gets to read: a line of JSON for each record,
// oldest first. changed is how many were left out because they were changed.
func (m *Memory) Lines(ctx context.Context, agentID string) (lines []byte, changed int, err error) {
	list, err := m.List(ctx, agentID)
	if err != nil {
		return nil, 0, err
	}
	for i := range list {
		if list[i].Changed {
			changed++
			continue
		}
		line, err := json.Marshal(&list[i])
		if err != nil {
			return nil, 0, err
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines, changed, nil
}

// Get is one record of an agent.
func (m *Memory) Get(ctx context.Context, agentID, id string) (Record, error) {
	list, err := m.List(ctx, agentID)
	for _, r := range list {
		if r.ID == id {
			return r, nil
		}
	}
	return Record{}, cmp.Or(err, ErrUnknown)
}

// Search is those records of an agent that hold all the words of a query, in
// their text, sources or issuer, whatever the case.
func (m *Memory) Search(ctx context.Context, agentID, query string) ([]Record, error) {
	list, err := m.List(ctx, agentID)
	words := strings.Fields(strings.ToLower(query))
	return slices.DeleteFunc(list, func(r Record) bool {
		text := strings.ToLower(r.Text + "\n" + strings.Join(r.Sources, "\n") + "\n" + r.Issuer)
		return r.Changed || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}), err
}

// ErrUnknown says that an agent has no such record.
var ErrUnknown = errors.New("the agent remembers nothing of that id")
