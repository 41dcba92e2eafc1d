// Package memory stores the answers of programs, so that the same programs can
// read them in later runs.
//
// A record belongs to one agent, identified by the agent's id. Only that agent's
// program and the owner can read it. A record is written if the caller holds
// memory.write, in the transaction that records the call, so the result has passed
// the guards by then. A program sees the records if the caller holds memory.read.
// The program reads them from a file with one line per record, made for that run.
// Answering is the only way for a program to write to its memory.
//
// Records are encrypted and bound to their agent and intent. A record that was
// modified, or moved to another agent, cannot be decrypted: it is reported as
// changed and its content is never shown.
//
// Memory is bounded. A text longer than [MaxText] is truncated and marked as cut.
// An agent has at most [MaxRecords] records with [MaxBytes] bytes; the oldest are
// deleted first. Expired records are hidden, and deleted when the next record is
// written.
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

// The capabilities that a caller needs.
const (
	Read  = "memory.read"
	Write = "memory.write"
)

const (
	MaxText    = 64 << 10
	MaxSources = 100
	MaxSource  = 2 << 10
	MaxRecords = 1000
	MaxBytes   = 16 << 20
	// DefaultTTL is how long a record is kept unless config.toml sets ttl.
	DefaultTTL = 30 * 24 * time.Hour
)

// Record is an earlier answer of a program.
type Record struct {
	// ID is the id of the answered intent.
	ID string `json:"id"`
	// Time is in Unix milliseconds, as in the line that the program reads.
	Time int64 `json:"time"`
	// Issuer is the principal that made the call.
	Issuer  string   `json:"issuer"`
	Text    string   `json:"text"`
	Sources []string `json:"sources"`
	// Cut reports that text or sources were truncated.
	Cut bool `json:"cut,omitempty"`

	Expires time.Time `json:"-"`
	// Changed reports that the record cannot be decrypted; only its ID is known.
	Changed bool `json:"-"`
}

// Memory holds the records of all agents of a store.
type Memory struct {
	store *store.Store
	ttl   time.Duration
	now   func() time.Time

	maxRecords, maxBytes int64
}

// New returns the memory in a store. Records expire after ttl; 0 means [DefaultTTL].
func New(s *store.Store, ttl time.Duration) *Memory {
	return &Memory{store: s, ttl: cmp.Or(ttl, DefaultTTL), now: time.Now, maxRecords: MaxRecords, maxBytes: MaxBytes}
}

// Participant records the answers of one agent's program, in the transactions of
// the agent's gateway.
type Participant struct {
	Memory *Memory
	Agent  *agent.Agent
}

// Begin accepts every call.
func (Participant) Begin(state.Tx, *call.Call) (*call.Refusal, error) { return nil, nil }

// Record stores the answer of a call if its caller holds memory.write.
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
		return nil // not the answer of a program
	}
	return p.Memory.put(tx, p.Agent.ID, bound(Record{
		ID: doc.Answer.ID, Time: p.Memory.now().UnixMilli(), Issuer: c.Principal,
		Text: doc.Answer.Text, Sources: doc.Answer.Sources,
	}))
}

// bound truncates the text and sources of a record to their limits.
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

// purpose binds an encrypted record to its agent and intent.
func purpose(agentID, id string) string {
	name, err := json.Marshal([]string{agentID, id})
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return "memory " + string(name)
}

// A repeated answer, by an idempotency key, is the same record.
const insert = `INSERT INTO memories (agent, id, kept, expires, size, sealed) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (agent, id) DO NOTHING`

// put stores a record, and deletes older ones that exceed the limits.
func (m *Memory) put(tx state.Tx, agentID string, r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	now := m.now()
	if _, err := tx.Exec(`DELETE FROM memories WHERE agent = $1 AND expires <= $2`, agentID, now.UnixMicro()); err != nil {
		return err
	}
	sealed := m.store.Keys.Seal(purpose(agentID, r.ID), text)
	n, err := tx.Exec(insert, agentID, r.ID, now.UnixMicro(), now.Add(m.ttl).UnixMicro(), int64(len(sealed)), sealed)
	if err != nil || n == 0 {
		return err
	}
	return m.trim(tx, agentID)
}

// trim deletes the oldest records of an agent until it is within its limits.
func (m *Memory) trim(tx state.Tx, agentID string) error {
	for {
		var records, bytes int64
		// PostgreSQL's SUM returns numeric.
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

// List returns the records of an agent, oldest first.
func (m *Memory) List(ctx context.Context, agentID string) (list []Record, err error) {
	err = m.store.DB.Read(ctx, func(tx state.Tx) error {
		list = nil
		return tx.Query(`SELECT id, expires, sealed FROM memories WHERE agent = $1 AND expires > $2 ORDER BY kept, id`,
			[]any{agentID, m.now().UnixMicro()}, func(row state.Row) error {
				var id string
				var expires int64
				var sealed []byte
				if err := row.Scan(&id, &expires, &sealed); err != nil {
					return err
				}
				r := m.open(agentID, id, sealed)
				r.Expires = time.UnixMicro(expires)
				list = append(list, r)
				return nil
			})
	})
	return list, err
}

// open decrypts one record. If that fails, the record is marked as changed.
func (m *Memory) open(agentID, id string, sealed []byte) Record {
	var r Record
	text, err := m.store.Keys.OpenKept(purpose(agentID, id), sealed)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || r.ID != id {
		return Record{ID: id, Changed: true}
	}
	return r
}

// Lines returns the records as an agent's program reads them: one line of JSON for
// each record, oldest first. changed counts the modified records that were left out.
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

// Get returns one record of an agent, or [ErrUnknown].
func (m *Memory) Get(ctx context.Context, agentID, id string) (Record, error) {
	list, err := m.List(ctx, agentID)
	if at := slices.IndexFunc(list, func(r Record) bool { return r.ID == id }); at >= 0 {
		return list[at], nil
	}
	return Record{}, cmp.Or(err, ErrUnknown)
}

// Search returns the records of an agent that contain all words of a query in
// their text, sources or issuer. It ignores case.
func (m *Memory) Search(ctx context.Context, agentID, query string) ([]Record, error) {
	list, err := m.List(ctx, agentID)
	words := strings.Fields(strings.ToLower(query))
	return slices.DeleteFunc(list, func(r Record) bool {
		text := strings.ToLower(r.Text + "\n" + strings.Join(r.Sources, "\n") + "\n" + r.Issuer)
		return r.Changed || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}), err
}

// ErrUnknown means that an agent has no record with that id.
var ErrUnknown = errors.New("the agent's memory has no record with that id")
