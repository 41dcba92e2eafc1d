// Package memory stores the answers of programs. A program can read its earlier answers in later runs.
//
// A record belongs to one agent, identified by the agent's id. Only the agent's program and the owner can read the
// record. A record is written only if the caller holds memory.write. The record is written in the transaction that
// records the call, after the result has passed the guardrails. A program can read the records only if the caller
// holds memory.read. For each run, the program gets a file with one line per record. The only way for a program to
// write to its memory is to answer.
//
// A record is encrypted and bound to its agent and intent. A record that was modified or moved to another agent
// cannot be decrypted. The record is then reported as changed, and its content is never shown.
//
// The memory of an agent is limited. A text longer than [MaxText] is truncated, and the record is marked. An agent
// has at most [MaxRecords] records with at most [MaxBytes] bytes in total. The oldest records are deleted first.
// Expired records are hidden immediately, and deleted when the next record is written.
package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// The capabilities that a caller needs to use an agent's memory.
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
	// DefaultTTL is how long a record is kept if config.toml does not set ttl.
	DefaultTTL = 30 * 24 * time.Hour
)

// Record is an earlier answer of a program.
type Record struct {
	// ID is the id of the intent that was answered.
	ID string `json:"id"`
	// Time is the time of the answer, in Unix milliseconds.
	Time int64 `json:"time"`
	// Issuer is the principal that made the call.
	Issuer  string   `json:"issuer"`
	Text    string   `json:"text"`
	Sources []string `json:"sources"`
	// Cut reports whether Text or Sources were truncated.
	Cut bool `json:"cut,omitempty"`

	Expires time.Time `json:"-"`
	// Changed reports whether the stored record was modified and can no longer be decrypted. If it is set, ID is the
	// only other field that is set.
	Changed bool `json:"-"`
}

// Memory contains the records of all agents of a store.
type Memory struct {
	store *store.Store
	ttl   time.Duration
	now   func() time.Time

	maxRecords, maxBytes int64
}

// New returns the memory in a store. Records expire after the given time. Zero means [DefaultTTL].
func New(s *store.Store, ttl time.Duration) *Memory {
	return &Memory{store: s, ttl: cmp.Or(ttl, DefaultTTL), now: time.Now, maxRecords: MaxRecords, maxBytes: MaxBytes}
}

// Participant stores the answers of one agent's program in the transactions of the agent's gateway.
type Participant struct {
	Memory *Memory
	Agent  *agent.Agent
}

// Begin accepts every call.
func (Participant) Begin(state.Tx, *call.Call) (*call.Refusal, error) { return nil, nil }

// Record stores the answer of a call if the caller holds memory.write.
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
		return nil // the result does not come from the program
	}
	return p.Memory.put(tx, p.Agent.ID, bound(Record{
		ID: doc.Answer.ID, Time: p.Memory.now().UnixMilli(), Issuer: c.Principal,
		Text: doc.Answer.Text, Sources: doc.Answer.Sources,
	}))
}

// bound truncates the text and the sources of a record to their limits.
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

// purpose returns the string that binds an encrypted record to its agent and intent.
func purpose(agentID, id string) string {
	name, err := json.Marshal([]string{agentID, id})
	if err != nil {
		panic(err) // strings can always be encoded as JSON
	}
	return "memory " + string(name)
}

// A repeated call with the same idempotency key has the same id. Its answer is not stored again.
const insert = `INSERT INTO memories (agent, id, kept, expires, size, sealed) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (agent, id) DO NOTHING`

// put stores a record and deletes expired records. If the agent exceeds its limits, put also deletes the oldest
// records.
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

// trim deletes the oldest records of an agent until the agent is within its limits.
func (m *Memory) trim(tx state.Tx, agentID string) error {
	for {
		var records, bytes int64
		// The cast is needed because PostgreSQL's SUM returns numeric.
		err := tx.Query(`SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM memories WHERE agent = $1`,
			[]any{agentID}, func(row state.Row) error { return row.Scan(&records, &bytes) })
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

// List returns the records of an agent that have not expired, oldest first.
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

// open decrypts a record. If the decryption fails, it marks the record as changed.
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

// Lines returns the records in the format that an agent's program reads. Each record is one line of JSON, oldest
// first. Records that cannot be decrypted are omitted. The second result is the number of omitted records.
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

// Search returns the records of an agent that contain all words of a query. The words can be in the text, the sources
// or the issuer. Search ignores case.
func (m *Memory) Search(ctx context.Context, agentID, query string) ([]Record, error) {
	list, err := m.List(ctx, agentID)
	words := strings.Fields(strings.ToLower(query))
	return slices.DeleteFunc(list, func(r Record) bool {
		text := strings.ToLower(r.Text + "\n" + strings.Join(r.Sources, "\n") + "\n" + r.Issuer)
		return r.Changed || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}), err
}

// ErrUnknown means that an agent has no record with the given id.
var ErrUnknown = errors.New("the agent's memory has no record with that id")

// TTL returns how long records are kept. In config.toml, the table [memory] can set this time, for example with
// ttl = "30d" or ttl = "12h". The default is [DefaultTTL].
func TTL(h home.Home) (time.Duration, error) {
	var table struct {
		TTL string `toml:"ttl"`
	}
	file := h.Config()
	found, err := home.ReadTable(file, "memory", &table)
	if err != nil || !found || table.TTL == "" {
		return DefaultTTL, err
	}
	ttl, err := home.Duration(table.TTL)
	if err != nil || ttl == 0 {
		return 0, fmt.Errorf(`%s: [memory]: ttl must be a duration such as "30d" or "12h"`, file)
	}
	return ttl, nil
}

// Purge deletes records of an agent and returns the number of deleted records. If ids are given, Purge deletes exactly
// these records. If one of the ids is unknown, Purge deletes nothing. If no ids are given, Purge deletes the records
// that are older than the cutoff time, or all records if the cutoff time is zero. The journal records who purged the
// memory.
func (m *Memory) Purge(
	ctx context.Context, agentID string, ids []string, cutoff time.Time, principal string,
) (deleted int64, err error) {
	err = m.store.DB.Write(ctx, func(tx state.Tx) (err error) {
		deleted = 0
		switch {
		case len(ids) > 0:
		case cutoff.IsZero():
			deleted, err = tx.Exec(`DELETE FROM memories WHERE agent = $1`, agentID)
		default:
			deleted, err = tx.Exec(`DELETE FROM memories WHERE agent = $1 AND kept < $2`, agentID, cutoff.UnixMicro())
		}
		for _, id := range ids {
			n, err := tx.Exec(`DELETE FROM memories WHERE agent = $1 AND id = $2`, agentID, id)
			if err == nil && n == 0 {
				err = fmt.Errorf("%w: %s", ErrUnknown, id)
			}
			if err != nil {
				return err
			}
			deleted += n
		}
		if err != nil || deleted == 0 {
			return err
		}
		_, err = m.store.Journal.Append(tx, &journal.Record{
			Time: m.now(), Call: gateway.NewID(), ID: agentID, Principal: principal, Tool: "purge",
			Decision: journal.Allow, Stage: "memory",
			Detail: fmt.Sprintf("deleted %d records from the memory of %s", deleted, agentID),
		})
		return err
	})
	if err == nil {
		err = m.store.DB.Scrub(ctx)
	}
	return deleted, err
}
