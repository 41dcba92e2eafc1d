// Package approval asks a person to approve one specific call.
//
// An answer is bound to the agent and its manifest's digest, the tool, the exact
// arguments to forward, and the principal; any other call needs its own approval. An
// answer is valid once, and until it expires. The question outlives the process that
// asked: a person may answer after the call stopped waiting, and the answer then applies
// to an identical call. An answer alone never makes a call.
//
// An agent cannot answer, because no tool does. The decision comes from the command line
// or the API, which identify the person: the owner, or an administrator by key.
//
// The arguments are stored only while the question is pending, for the person to read;
// the answer needs only their MAC.
package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// State is the state of a question.
type State string

// The states. Used means that the approved call was made.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
	Used     State = "used"
)

// Question is one call that waits for a person.
type Question struct {
	ID     string `json:"id"`
	Agent  string `json:"agent"`
	Digest string `json:"digest"`
	Tool   string `json:"tool"`
	// Arguments is nil once the question is no longer pending.
	Arguments json.RawMessage `json:"arguments"`
	Principal string          `json:"principal"`
	// Call is the id of the call that asked first.
	Call    string    `json:"call_id,omitempty"`
	State   State     `json:"state"`
	Asked   time.Time `json:"asked_at"`
	Expires time.Time `json:"expires_at"`
	Decider string    `json:"decided_by,omitempty"`
	Reason  string    `json:"reason,omitempty"`

	sealed []byte
}

// Over reports whether the time to answer, or to use an answer, has passed.
func (q *Question) Over(now time.Time) bool { return !now.Before(q.Expires) }

// The bounds of the pending questions of one agent and principal. They protect the
// person, the store and other callers from a flood of questions. One call may use half
// of the bytes.
const (
	maxPending      = 50
	maxPendingBytes = 32 << 20
)

// Errors that callers distinguish.
var (
	// ErrTooMany means that the pending questions of the agent are too many or too large.
	ErrTooMany = errors.New("too many calls of this agent and principal wait for approval")
	// ErrUnknown means that there is no such question.
	ErrUnknown = errors.New("there is no approval of that id")
	// ErrDecided means that the question was answered before.
	ErrDecided = errors.New("it was decided before")
	// ErrOver means that the question has expired.
	ErrOver = errors.New("it has expired")
)

// The columns of a question, with and without its arguments, which may be large and
// must be decrypted.
const (
	known = `id, agent, digest, tool, principal, call, state, asked, expires, decider, reason, `
	whole = known + `sealed`
	bare  = known + `CAST(NULL AS BYTEA)`
)

func scan(row state.Row) (*Question, error) {
	q := &Question{}
	var asked, expires int64
	var s string
	err := row.Scan(&q.ID, &q.Agent, &q.Digest, &q.Tool, &q.Principal, &q.Call, &s, &asked, &expires, &q.Decider, &q.Reason, &q.sealed)
	q.State, q.Asked, q.Expires = State(s), time.UnixMicro(asked), time.UnixMicro(expires)
	return q, err
}

// mac authenticates everything that the answer is bound to.
func (q *Question) mac(b *store.Store) []byte {
	bound, err := json.Marshal([]string{q.Agent, q.Digest, q.Tool, q.Principal})
	if err != nil {
		panic(err) // strings always marshal
	}
	mac := b.Keys.MAC("approval "+string(bound), q.Arguments)
	return mac[:]
}

// Find returns the newest question for an identical call that has not expired: a
// pending one, or an unused approval. It returns nil if there is none.
func Find(tx state.Tx, b *store.Store, q *Question, now time.Time) (found *Question, err error) {
	err = tx.Query(`SELECT `+bare+` FROM approvals WHERE mac = $1 AND state IN ('pending', 'approved') AND expires > $2
ORDER BY asked DESC LIMIT 1`, []any{q.mac(b), now.UnixMicro()}, func(row state.Row) (err error) {
		found, err = scan(row)
		return err
	})
	return found, err
}

// Ask stores a question, unless an identical one is open. It returns the open one.
func Ask(ctx context.Context, b *store.Store, q *Question) (asked *Question, err error) {
	err = b.DB.Write(ctx, func(tx state.Tx) (err error) {
		if asked, err = Find(tx, b, q, q.Asked); err != nil || asked != nil {
			return err
		}
		sealed := b.Keys.Seal(purpose(q.ID), q.Arguments)
		if err = checkBounds(tx, q, len(sealed)); err != nil {
			return err
		}
		asked = q
		_, err = tx.Exec(`INSERT INTO approvals (id, agent, digest, tool, principal, call, mac, sealed, state, asked, expires)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9, $10)`,
			q.ID, q.Agent, q.Digest, q.Tool, q.Principal, q.Call, q.mac(b), sealed, q.Asked.UnixMicro(), q.Expires.UnixMicro())
		return err
	})
	return asked, err
}

// PostgreSQL returns a sum as numeric, so it is cast.
const countWaiting = `SELECT COUNT(*), CAST(COALESCE(SUM(LENGTH(sealed)), 0) AS BIGINT) FROM approvals
WHERE agent = $1 AND principal = $2 AND state = 'pending' AND expires > $3`

// checkBounds refuses a question that would exceed the bounds of its agent and principal.
func checkBounds(tx state.Tx, q *Question, size int) error {
	var waiting, held int64
	err := tx.Query(countWaiting,
		[]any{q.Agent, q.Principal, q.Asked.UnixMicro()}, func(row state.Row) error { return row.Scan(&waiting, &held) })
	switch {
	case err != nil:
		return err
	case waiting >= maxPending:
		return ErrTooMany
	case held+int64(size) > maxPendingBytes:
		return fmt.Errorf("%w: with this call their arguments would exceed %d MiB", ErrTooMany, maxPendingBytes>>20)
	}
	// Expired questions are not counted, so their arguments are deleted here.
	_, err = tx.Exec(`UPDATE approvals SET sealed = NULL WHERE agent = $1 AND principal = $2 AND expires <= $3 AND sealed IS NOT NULL`,
		q.Agent, q.Principal, q.Asked.UnixMicro())
	return err
}

func purpose(id string) string { return "arguments of approval " + id }

// Get returns a question, with its arguments if it is pending.
func Get(ctx context.Context, b *store.Store, id string) (*Question, error) {
	found, err := read(ctx, b, whole, id)
	if err != nil {
		return nil, err
	}
	return found, found.open(b)
}

// Look returns a question without its arguments, for a call that waits for the answer.
func Look(ctx context.Context, b *store.Store, id string) (*Question, error) {
	return read(ctx, b, bare, id)
}

func read(ctx context.Context, b *store.Store, columns, id string) (found *Question, err error) {
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		found, err = get(tx, columns, id)
		return err
	})
	return found, err
}

func get(tx state.Tx, columns, id string) (found *Question, err error) {
	err = tx.Query(`SELECT `+columns+` FROM approvals WHERE id = $1`, []any{id}, func(row state.Row) (err error) {
		found, err = scan(row)
		return err
	})
	if err == nil && found == nil {
		err = ErrUnknown
	}
	return found, err
}

func (q *Question) open(b *store.Store) error {
	if q.sealed == nil {
		return nil
	}
	arguments, err := b.Keys.OpenKept(purpose(q.ID), q.sealed)
	q.Arguments, q.sealed = arguments, nil
	return err
}

// List returns the pending questions, oldest first.
func List(ctx context.Context, b *store.Store, now time.Time) ([]*Question, error) {
	list, err := waiting(ctx, b, whole, now)
	if err != nil {
		return nil, err
	}
	for _, q := range list {
		if err := q.open(b); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Waiting returns the same list without the arguments.
func Waiting(ctx context.Context, b *store.Store, now time.Time) ([]*Question, error) {
	return waiting(ctx, b, bare, now)
}

func waiting(ctx context.Context, b *store.Store, columns string, now time.Time) (list []*Question, err error) {
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		list = nil
		return tx.Query(`SELECT `+columns+` FROM approvals WHERE state = 'pending' AND expires > $1 ORDER BY asked`,
			[]any{now.UnixMicro()}, func(row state.Row) error {
				q, err := scan(row)
				list = append(list, q)
				return err
			})
	})
	return list, err
}

// Decide answers a question once and journals the decision under the call that asked.
func Decide(ctx context.Context, b *store.Store, id string, yes bool, who, reason string) error {
	return b.DB.Write(ctx, func(tx state.Tx) error {
		q, err := get(tx, bare, id)
		now := time.Now()
		switch {
		case err != nil:
			return err
		case q.State != Pending:
			return ErrDecided
		case q.Over(now):
			return ErrOver
		}
		s, decision, said := Denied, journal.Deny, "refused by "
		if yes {
			s, decision, said = Approved, journal.Allow, "approved by "
		}
		n, err := tx.Exec(`UPDATE approvals SET state = $1, decider = $2, decided = $3, reason = $4, sealed = NULL
WHERE id = $5 AND state = 'pending'`,
			string(s), who, now.UnixMicro(), reason, id)
		if err == nil && n == 0 {
			err = ErrDecided
		}
		if err != nil {
			return err
		}
		_, err = b.Journal.Append(tx, &journal.Record{
			Time: now, Call: id, Parent: q.Call, Agent: q.Agent, Digest: q.Digest, Principal: who, Tool: q.Tool,
			Decision: decision, Stage: "approve", Detail: "a call by " + q.Principal + " was " + said + who,
		})
		return err
	})
}

// Use marks an approval as used, in the transaction that writes the intent. It reports
// whether the approval was still valid.
func Use(tx state.Tx, id string, now time.Time) (bool, error) {
	n, err := tx.Exec(`UPDATE approvals SET state = 'used' WHERE id = $1 AND state = 'approved' AND expires > $2`,
		id, now.UnixMicro())
	return n == 1, err
}
