package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Intent is what was asked of a program, and what became of it.
type Intent struct {
	ID        string
	Agent     string // its id
	Digest    string
	Name      string // what it runs under
	Principal string
	Parent    string
	// Priority is the one that was asked for.
	Priority Priority
	// OverBudget is set if the agent had used up its budget, so that the intent
	// runs at low priority.
	OverBudget bool
	State      State
	Attempts   int
	Asked      time.Time
	Started    time.Time // zero before
	Ended      time.Time // zero before

	// Result is there when it is Done, Refusal when it ended otherwise.
	Result  *call.Result
	Refusal *call.Refusal

	repeatable bool
	owner      string
	kind       string
	job        int64
}

// effective is the priority that it really has.
func (i *Intent) effective() Priority {
	if i.OverBudget {
		return Low
	}
	return i.Priority
}

// Answer is the line that the program wrote: intent_id, status, text and sources.
func (i *Intent) Answer() json.RawMessage {
	if i.Result == nil {
		return nil
	}
	var doc struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if json.Unmarshal(i.Result.Raw, &doc) != nil {
		return nil
	}
	return doc.StructuredContent
}

// card is an intent as the API shows it.
type card struct {
	ID         string          `json:"intent_id"`
	Agent      string          `json:"agent"`
	Name       string          `json:"name"`
	Digest     string          `json:"digest"`
	Principal  string          `json:"principal"`
	Parent     string          `json:"parent,omitempty"`
	Priority   Priority        `json:"priority"`
	OverBudget bool            `json:"over_budget"`
	State      State           `json:"state"`
	Attempts   int             `json:"attempts"`
	Asked      time.Time       `json:"asked_at"`
	Started    *time.Time      `json:"started_at,omitempty"`
	Ended      *time.Time      `json:"ended_at,omitempty"`
	Answer     json.RawMessage `json:"answer,omitempty"`
	Error      *call.Refusal   `json:"error,omitempty"`
}

// MarshalJSON is how the API shows an intent.
func (i *Intent) MarshalJSON() ([]byte, error) {
	c := card{
		ID: UUID(i.ID), Agent: i.Agent, Name: i.Name, Digest: i.Digest, Principal: i.Principal, Parent: UUID(i.Parent),
		Priority: i.Priority, OverBudget: i.OverBudget, State: i.State, Attempts: i.Attempts, Asked: i.Asked.UTC(),
		Answer: i.Answer(), Error: i.Refusal,
	}
	if !i.Started.IsZero() {
		at := i.Started.UTC()
		c.Started = &at
	}
	if !i.Ended.IsZero() {
		at := i.Ended.UTC()
		c.Ended = &at
	}
	return json.Marshal(c)
}

// What sealed things are for.
const (
	sealAsked  = "what intent asks "
	sealAnswer = "answer to intent "
)

// asking is what lies sealed of an intent: who asks, and by what, is not for the
// store to say, since that decides what may be done.
type asking struct {
	Principal string          `json:"principal"`
	By        string          `json:"by,omitempty"`
	Key       string          `json:"key,omitempty"`
	Until     time.Time       `json:"until,omitzero"`
	Arguments json.RawMessage `json:"arguments"`
}

const insertIntent = `INSERT INTO intents (id, agent, digest, name, principal, parent, priority, level, over, repeatable, sealed,
state, owner, kind, job, attempts, cancel, asked, started, ended)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, 0, 0, $15, 0, 0)`

// insert writes a new intent, and its job where the queue is shared.
func (d *Queue) insert(ctx context.Context, i *Intent, asked []byte) error {
	sealed := d.books.Keys.Seal(sealAsked+i.ID, asked)
	i.kind = kindsOf(d.books.Keys, i.Digest)[0]
	if d.shared != nil {
		// Beforehand, since whoever counts and writes in one transaction meets all
		// others who ask. Those who do so at once may exceed the bound together.
		err := d.books.DB.Read(ctx, func(tx state.Tx) error { return d.takes(tx, i.Principal, len(sealed)) })
		if err != nil {
			return err
		}
	}
	return d.books.DB.Write(ctx, func(tx state.Tx) error {
		args := []any{
			i.ID, i.Agent, i.Digest, i.Name, i.Principal, i.Parent, string(i.Priority), i.effective().level(),
			number(i.OverBudget), number(i.repeatable), sealed, string(Queued),
		}
		if d.shared != nil {
			return insertWithJob(tx, i, args)
		}
		if err := d.takes(tx, i.Principal, len(sealed)); err != nil {
			return err
		}
		_, err := tx.Exec(insertIntent, append(args, d.books.DB.Owner(), i.kind, i.Asked.UnixMicro())...)
		return err
	})
}

// takes fails if an intent can never be done, or is too much.
func (d *Queue) takes(tx state.Tx, principal string, size int) error {
	if err := d.books.Journal.InForce(tx); err != nil {
		return err
	}
	return room(tx, principal, size)
}

// The bounds of what waits for one principal.
const (
	maxWaiting      = 2000
	maxWaitingBytes = 4 * maxAsked
)

// A sum is a numeric to PostgreSQL.
const countWaiting = `SELECT count(*), CAST(coalesce(sum(length(sealed)), 0) AS BIGINT) FROM intents
WHERE ended = 0 AND state = 'queued' AND principal = $1`

// room refuses an intent that is too much for what its principal has waiting.
func room(tx state.Tx, principal string, size int) error {
	var n, bytes int64
	err := tx.Query(countWaiting, []any{principal}, func(row state.Row) error { return row.Scan(&n, &bytes) })
	if err != nil || n < maxWaiting && bytes+int64(size) <= maxWaitingBytes {
		return err
	}
	r := call.Refuse(stage, call.RateLimited, "%d intents of yours wait already, with %d MiB; at most %d with %d MiB may", n, bytes>>20, maxWaiting, maxWaitingBytes>>20).Again()
	r.Hint = "ask again when some of them are done, or cancel some"
	return r
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

const columns = `id, agent, digest, name, principal, parent, priority, over, repeatable, state, owner, kind, job, attempts, asked, started, ended`

func scan(row state.Row, more ...any) (*Intent, error) {
	var i Intent
	var priority, is string
	var over, repeatable, attempts, asked, started, ended int64
	into := []any{
		&i.ID, &i.Agent, &i.Digest, &i.Name, &i.Principal, &i.Parent, &priority, &over, &repeatable, &is, &i.owner, &i.kind, &i.job,
		&attempts, &asked, &started, &ended,
	}
	if err := row.Scan(append(into, more...)...); err != nil {
		return nil, err
	}
	i.Priority, i.State, i.OverBudget, i.repeatable, i.Attempts = Priority(priority), State(is), over != 0, repeatable != 0, int(attempts)
	i.Asked, i.Started, i.Ended = state.Instant(asked), state.Instant(started), state.Instant(ended)
	return &i, nil
}

// ErrNoIntent means that there is no intent of an id.
var ErrNoIntent = errors.New("there is no intent of that id")

// Get reads an intent with its answer, or fails with ErrNoIntent.
func (d *Queue) Get(ctx context.Context, id string) (*Intent, error) {
	var i *Intent
	var answer []byte
	inHand := d.inHand(id) // before the look, so that what has just ended is not taken for left
	err := d.books.DB.Read(ctx, func(tx state.Tx) error {
		i, answer = nil, nil
		return tx.Query(`SELECT `+columns+`, answer FROM intents WHERE id = $1`, []any{id}, func(row state.Row) (err error) {
			i, err = scan(row, &answer)
			return err
		})
	})
	switch {
	case err != nil:
		return nil, err
	case i == nil:
		return nil, ErrNoIntent
	}
	if i.State == Queued && !inHand {
		nobody := d.nobodyHere
		if d.shared != nil {
			nobody = d.nobody
		}
		if err := nobody(ctx, i); err != nil {
			return nil, err
		}
	}
	return i, i.read(d.books, answer)
}

// kept is an answer as it lies in the store.
type kept struct {
	Raw     json.RawMessage `json:"raw,omitempty"`
	IsError bool            `json:"is_error,omitempty"`
	Took    time.Duration   `json:"took,omitempty"`
	Refusal *call.Refusal   `json:"refusal,omitempty"`
}

func (i *Intent) read(b *store.Store, sealed []byte) error {
	if sealed == nil {
		return nil
	}
	text, err := b.Keys.OpenKept(sealAnswer+i.ID, sealed)
	var k kept
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	switch {
	case err != nil:
		i.Refusal = call.Refuse(stage, call.OutcomeUnknown, "the answer cannot be read here: %v", err)
	case k.Refusal != nil:
		i.Refusal = k.Refusal
	default:
		i.Result = &call.Result{Raw: []byte(k.Raw), IsError: k.IsError, Duration: k.Took}
	}
	return nil
}

// Filter chooses intents; empty fields choose all.
type Filter struct {
	Agent, Principal string
	State            State
	Before           time.Time
	Limit            int
}

// List reads intents without their answers, the newest first.
func (d *Queue) List(ctx context.Context, f Filter) ([]*Intent, error) {
	if f.Before.IsZero() {
		f.Before = time.Now().Add(time.Minute)
	}
	found := []*Intent{}
	err := d.books.DB.Read(ctx, func(tx state.Tx) error {
		found = found[:0]
		query := `SELECT ` + columns + ` FROM intents WHERE asked < $1 AND ($2 = '' OR agent = $2) AND ($3 = '' OR principal = $3)
AND ($4 = '' OR state = $4) ORDER BY asked DESC LIMIT $5`
		return tx.Query(query,
			[]any{f.Before.UnixMicro(), f.Agent, f.Principal, string(f.State), int64(f.Limit)}, func(row state.Row) error {
				i, err := scan(row)
				found = append(found, i)
				return err
			})
	})
	return found, err
}

const (
	claimIntent = `UPDATE intents SET state = 'running', owner = $1, started = $2, attempts = attempts + 1,
repeatable = CASE WHEN $3 = 1 THEN 0 ELSE repeatable END WHERE id = $4 AND state = 'queued'`
	// Its owner settles it, and a late answer settles an unknown one.
	settleIntent = `UPDATE intents SET state = CASE WHEN cancel = 1 AND $1 = 'failed' THEN 'cancelled' ELSE $1 END, ended = $2, answer = $3, sealed = NULL
WHERE id = $4 AND (state = 'running' AND owner = $5 OR state = 'unknown')`
	// An intent that was refused before it began has no owner yet.
	refuseIntent = `UPDATE intents SET state = CASE WHEN cancel = 1 AND $1 = 'failed' THEN 'cancelled' ELSE $1 END, ended = $2, answer = $3, sealed = NULL
WHERE id = $4 AND state = 'queued'`
	stateOf = `SELECT state FROM intents WHERE id = $1`
)

// errTaken means that another owner has the intent.
var errTaken = errors.New("somebody else has the intent")

// settle writes the answer to an intent. It returns false if the call was none.
func settle(tx state.Tx, b *store.Store, id string, o call.Outcome) (bool, error) {
	k := kept{Refusal: o.Refusal}
	if r := o.Result; o.Refusal == nil {
		k = kept{Raw: json.RawMessage(r.Raw), IsError: r.IsError, Took: r.Duration}
	}
	text, err := json.Marshal(k)
	if err != nil {
		return false, err
	}
	query, args := refuseIntent, []any{string(endState(o.Refusal)), time.Now().UnixMicro(), b.Keys.Seal(sealAnswer+id, text), id}
	if o.Begun {
		query, args = settleIntent, append(args, b.DB.Owner())
	}
	n, err := tx.Exec(query, args...)
	if err != nil || n == 1 {
		return n == 1, err
	}
	found := false
	err = tx.Query(stateOf, []any{id}, func(state.Row) error { found = true; return nil })
	if err == nil && found {
		return true, errTaken
	}
	return false, err
}

func endState(stopped *call.Refusal) State {
	switch {
	case stopped == nil:
		return Done
	case stopped.Effect == call.EffectUnknown:
		return Unknown
	}
	return Failed
}
