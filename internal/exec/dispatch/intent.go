package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Intent is a queued task for a program, together with its outcome.
type Intent struct {
	ID        string `json:"intent_id"`
	Agent     string `json:"agent"` // the agent's id
	Name      string `json:"name"`  // the name under which the agent runs
	Digest    string `json:"digest"`
	Principal string `json:"principal"`
	Parent    string `json:"parent,omitempty"`
	// Priority is the requested priority.
	Priority Priority `json:"priority"`
	// OverBudget is set if the agent had already used up its budget. In that case, the intent runs at low priority.
	OverBudget bool      `json:"over_budget"`
	State      State     `json:"state"`
	Attempts   int       `json:"attempts"`
	Asked      time.Time `json:"asked_at"`
	Started    time.Time `json:"started_at,omitzero"`
	Ended      time.Time `json:"ended_at,omitzero"`

	// Result is set if the state is Done. Refusal is set if the state is Failed, Cancelled or Unknown.
	Result  *call.Result  `json:"-"`
	Refusal *call.Refusal `json:"-"`

	repeatable bool
	owner      string
	kind       string
	job        int64
}

// effectivePriority returns the priority at which the intent runs. If the agent is over its budget, the priority is
// low.
func (i *Intent) effectivePriority() Priority {
	if i.OverBudget {
		return Low
	}
	return i.Priority
}

// Answer returns the line of JSON that the program wrote, with intent_id, status, text and sources. It returns nil if
// the intent has no answer.
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

// MarshalJSON encodes an intent as the API returns it.
func (i *Intent) MarshalJSON() ([]byte, error) {
	type fields Intent
	f := fields(*i)
	f.ID, f.Parent = UUID(i.ID), UUID(i.Parent)
	f.Asked, f.Started, f.Ended = i.Asked.UTC(), i.Started.UTC(), i.Ended.UTC()
	return json.Marshal(struct {
		fields
		Answer json.RawMessage `json:"answer,omitempty"`
		Error  *call.Refusal   `json:"error,omitempty"`
	}{f, i.Answer(), i.Refusal})
}

// The purposes for which values are encrypted. A value can be decrypted only with the same purpose, so the strings must
// never change.
const (
	sealAsked  = "what intent asks "
	sealAnswer = "answer to intent "
)

// sealedRequest is the encrypted part of an intent. It includes the principal, so a changed principal in the row has
// no effect.
type sealedRequest struct {
	// Digest is the digest of the agent's manifest. It is empty if an earlier version of ambit stored the intent.
	Digest string `json:"digest,omitempty"`
	// Name is the name under which the agent runs. It is empty if an earlier version of ambit stored the intent.
	Name       string               `json:"name,omitempty"`
	Principal  string               `json:"principal"`
	Attributes *identity.Attributes `json:"attributes,omitempty"`
	By         string               `json:"by,omitempty"`
	Key        string               `json:"key,omitempty"`
	Until      time.Time            `json:"until,omitzero"`
	Arguments  json.RawMessage      `json:"arguments"`
}

const insertIntent = `INSERT INTO intents (id, agent, digest, name, principal, parent, priority, level, over,
repeatable, sealed, state, owner, kind, job, attempts, cancel, asked, started, ended)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, 0, 0, $15, 0, 0)`

// insert writes a new intent. If the queue runs on PostgreSQL, insert also writes a job for the intent.
func (q *Queue) insert(ctx context.Context, i *Intent, asked []byte) error {
	sealed := q.store.Keys.Seal(sealAsked+i.ID, asked)
	i.kind = kindsOf(q.store.Keys, i.Digest)[0]
	if q.shared != nil {
		// A transaction that counts and writes would conflict with every concurrent Submit, so count in a separate
		// transaction. The drawback is that concurrent Submits together can exceed the limit.
		err := q.store.DB.Read(ctx, func(tx state.Tx) error { return q.admit(tx, i.Principal, len(sealed)) })
		if err != nil {
			return err
		}
	}
	return q.store.DB.Write(ctx, func(tx state.Tx) error {
		args := []any{
			i.ID, i.Agent, i.Digest, i.Name, i.Principal, i.Parent, string(i.Priority), i.effectivePriority().level(),
			toInt(i.OverBudget), toInt(i.repeatable), sealed, string(Queued),
		}
		if q.shared != nil {
			return insertWithJob(tx, i, args)
		}
		if err := q.admit(tx, i.Principal, len(sealed)); err != nil {
			return err
		}
		_, err := tx.Exec(insertIntent, append(args, q.store.DB.Owner(), i.kind, i.Asked.UnixMicro())...)
		return err
	})
}

// The limits for the waiting intents of one principal.
const (
	maxWaiting      = 2000
	maxWaitingBytes = 4 * maxArguments
)

// The cast is needed because PostgreSQL returns a sum as NUMERIC.
const countWaiting = `SELECT count(*), CAST(coalesce(sum(length(sealed)), 0) AS BIGINT) FROM intents
WHERE ended = 0 AND state = 'queued' AND principal = $1`

// admit refuses an intent if the root key of this process is no longer valid, or if the principal has too many waiting
// intents.
func (q *Queue) admit(tx state.Tx, principal string, size int) error {
	if err := q.store.Journal.InForce(tx); err != nil {
		return err
	}
	var n, bytes int64
	err := tx.Query(countWaiting, []any{principal}, func(row state.Row) error { return row.Scan(&n, &bytes) })
	if err != nil || n < maxWaiting && bytes+int64(size) <= maxWaitingBytes {
		return err
	}
	r := call.Refuse(stage, call.RateLimited, "you have %d waiting intents (%d MiB); the limits are %d intents and %d MiB",
		n, bytes>>20, maxWaiting, maxWaitingBytes>>20).Again()
	r.Hint = "retry when some of your intents are done, or cancel some of them"
	return r
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

const columns = `id, agent, digest, name, principal, parent, priority, over, repeatable, state, owner, kind, job,
attempts, asked, started, ended`

func scan(row state.Row, more ...any) (*Intent, error) {
	var i Intent
	var priority, is string
	var over, repeatable, attempts, asked, started, ended int64
	into := []any{
		&i.ID, &i.Agent, &i.Digest, &i.Name, &i.Principal, &i.Parent, &priority, &over, &repeatable, &is,
		&i.owner, &i.kind, &i.job, &attempts, &asked, &started, &ended,
	}
	if err := row.Scan(append(into, more...)...); err != nil {
		return nil, err
	}
	i.Priority, i.State, i.Attempts = Priority(priority), State(is), int(attempts)
	i.OverBudget, i.repeatable = over != 0, repeatable != 0
	i.Asked, i.Started, i.Ended = state.Instant(asked), state.Instant(started), state.Instant(ended)
	return &i, nil
}

// collect returns a callback that reads an intent from a row and appends it to a list.
func collect(list *[]*Intent) func(state.Row) error {
	return func(row state.Row) error {
		i, err := scan(row)
		*list = append(*list, i)
		return err
	}
}

// collectText returns a callback that reads a string from a row and appends it to a list.
func collectText(list *[]string) func(state.Row) error {
	return func(row state.Row) error {
		var text string
		err := row.Scan(&text)
		*list = append(*list, text)
		return err
	}
}

// ErrNoIntent means that no intent has the given id.
var ErrNoIntent = errors.New("no intent has that id")

// Get returns an intent together with its answer, or [ErrNoIntent].
func (q *Queue) Get(ctx context.Context, id string) (*Intent, error) {
	var i *Intent
	var answer []byte
	// Check the reservation before reading the row. Otherwise an intent that ends between the two steps would be shown as
	// NoWorker.
	reserved := q.isReserved(id)
	err := q.store.DB.Read(ctx, func(tx state.Tx) error {
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
	if i.State == Queued && !reserved {
		served := q.servedLocal
		if q.shared != nil {
			served = q.servedShared
		}
		if ok, err := served(ctx, i); err != nil {
			return nil, err
		} else if !ok {
			i.State = NoWorker
		}
	}
	i.readAnswer(q.store, answer)
	return i, nil
}

// storedAnswer is the answer to an intent, before it is encrypted.
type storedAnswer struct {
	// For is nil if an earlier version of ambit stored the answer.
	For     *answerFor      `json:"for,omitempty"`
	Raw     json.RawMessage `json:"raw,omitempty"`
	IsError bool            `json:"is_error,omitempty"`
	Took    time.Duration   `json:"took,omitempty"`
	Refusal *call.Refusal   `json:"refusal,omitempty"`
}

// answerFor identifies who may read an answer. It comes from the sealed request, because the row in the store may have
// been changed. If the request cannot be read, answerFor is empty, and the answer is not shown.
type answerFor struct {
	Principal string `json:"principal"`
	Name      string `json:"name,omitempty"`
}

func (f *answerFor) matches(i *Intent) bool {
	return f == nil || f.Principal == i.Principal && (f.Name == "" || f.Name == i.Name)
}

const selectSealed = `SELECT sealed, answer FROM intents WHERE id = $1`

// seal encrypts an answer. It returns nil if there is no intent with the given id.
func (a storedAnswer) seal(tx state.Tx, s *store.Store, id string) ([]byte, error) {
	var asked, earlier []byte
	found := false
	err := tx.Query(selectSealed, []any{id}, func(row state.Row) error {
		found = true
		return row.Scan(&asked, &earlier)
	})
	if err != nil || !found {
		return nil, err
	}
	a.For = &answerFor{}
	if asked != nil {
		if text, err := s.Keys.OpenKept(sealAsked+id, asked); err == nil {
			_ = json.Unmarshal(text, a.For) // both types use the same JSON names for these members
		}
	} else if k, err := openAnswer(s, id, earlier); err == nil && k.For != nil {
		a.For = k.For // this answer is late, and the request was deleted when the first answer was stored
	}
	text, err := json.Marshal(a)
	return s.Keys.Seal(sealAnswer+id, text), err
}

func openAnswer(s *store.Store, id string, sealed []byte) (k storedAnswer, err error) {
	text, err := s.Keys.OpenKept(sealAnswer+id, sealed)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err
}

func (i *Intent) readAnswer(s *store.Store, sealed []byte) {
	if sealed == nil {
		return
	}
	k, err := openAnswer(s, i.ID, sealed)
	switch {
	case err != nil:
		i.Refusal = call.Refuse(stage, call.OutcomeUnknown,
			"the answer cannot be decrypted with the keys of this store: %v", err)
	case !k.For.matches(i):
		i.Refusal = call.Refuse(stage, call.OutcomeUnknown,
			"the answer belongs to another principal or agent: the row of this intent in the store was changed")
	case k.Refusal != nil:
		i.Refusal = k.Refusal
	default:
		i.Result = &call.Result{Raw: []byte(k.Raw), IsError: k.IsError, Duration: k.Took}
	}
}

// Filter selects intents. An empty field matches all intents.
type Filter struct {
	Agent, Principal string
	State            State
	Before           time.Time
	Limit            int
}

// List returns intents without their answers, newest first.
func (q *Queue) List(ctx context.Context, f Filter) ([]*Intent, error) {
	if f.Before.IsZero() {
		f.Before = time.Now().Add(time.Minute)
	}
	found := []*Intent{}
	err := q.store.DB.Read(ctx, func(tx state.Tx) error {
		found = found[:0]
		query := `SELECT ` + columns + ` FROM intents
WHERE asked < $1 AND ($2 = '' OR agent = $2) AND ($3 = '' OR principal = $3) AND ($4 = '' OR state = $4)
ORDER BY asked DESC LIMIT $5`
		args := []any{f.Before.UnixMicro(), f.Agent, f.Principal, string(f.State), int64(f.Limit)}
		return tx.Query(query, args, collect(&found))
	})
	return found, err
}

const (
	claimIntent = `UPDATE intents SET state = 'running', owner = $1, started = $2, attempts = attempts + 1,
repeatable = CASE WHEN $3 = 1 THEN 0 ELSE repeatable END WHERE id = $4 AND state = 'queued'`
	setAnswer = `UPDATE intents SET state = CASE WHEN cancel = 1 AND $1 = 'failed' THEN 'cancelled' ELSE $1 END,
ended = $2, answer = $3, sealed = NULL WHERE id = $4 AND `
	// settleIntent stores the answer to an intent. If the intent is running, only the process that owns it can store the
	// answer. If its state is Unknown, any process can.
	settleIntent = setAnswer + `(state = 'running' AND owner = $5 OR state = 'unknown')`
	// refuseIntent stores the refusal of an intent that never began. Any process can store it.
	refuseIntent = setAnswer + `state = 'queued'`
	stateOf      = `SELECT state FROM intents WHERE id = $1`
)

// errTaken means that another process has claimed the intent, or that the intent has already ended.
var errTaken = errors.New("another process has claimed the intent, or the intent has ended")

// settle stores the answer to the intent with the given id. If there is no such intent, settle does nothing, because a
// call can be made without an intent.
func settle(tx state.Tx, b *store.Store, id string, o call.Outcome) error {
	k := storedAnswer{Refusal: o.Refusal}
	if r := o.Result; o.Refusal == nil {
		k = storedAnswer{Raw: json.RawMessage(r.Raw), IsError: r.IsError, Took: r.Duration}
	}
	sealed, err := k.seal(tx, b, id)
	if err != nil || sealed == nil {
		return err
	}
	query := refuseIntent
	args := []any{string(endState(o.Refusal)), time.Now().UnixMicro(), sealed, id}
	if o.Begun {
		query, args = settleIntent, append(args, b.DB.Owner())
	}
	n, err := tx.Exec(query, args...)
	if err != nil || n == 1 {
		return err
	}
	return errTaken
}

func exists(tx state.Tx, query, id string) (found bool, err error) {
	err = tx.Query(query, []any{id}, func(state.Row) error { found = true; return nil })
	return found, err
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
