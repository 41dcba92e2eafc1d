// Package approval asks a person to approve one specific call.
//
// An approval is bound to the agent, the manifest's digest, the tool, the exact arguments and the principal. Any
// other call needs its own approval. An approval can be used once, before it expires.
//
// A question outlives the process that asked it. If a person answers after the call has stopped waiting, the answer
// applies to the next identical call: an approval permits it, and a denial refuses it with the person's reason. An answer
// alone never makes a call.
//
// An agent cannot answer a question, because no tool accepts an answer. Answers come from the command line or the
// API. Both identify the person: the owner, or an administrator with a key.
//
// The arguments are stored only while the question is pending, for the person to read. Answers are matched to calls by
// a MAC of the arguments. The same MAC proves that ambit wrote a pending question: a question that something else wrote
// to the store is not shown and cannot be answered. An approval is valid only while the register of authority contains
// it. Using the approval removes it from the register.
package approval

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// State is the state of a question.
type State string

// The states of a question. Used means that the approved call has been sent.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
	Used     State = "used"
)

// Question is one call that waits for a person's decision.
type Question struct {
	ID     string `json:"id"`
	Agent  string `json:"agent"`
	Digest string `json:"digest"`
	Tool   string `json:"tool"`
	// Arguments is nil once the question is no longer pending.
	Arguments json.RawMessage `json:"arguments"`
	Principal string          `json:"principal"`
	// Call is the id of the first call that asked this question.
	Call    string    `json:"call_id,omitempty"`
	State   State     `json:"state"`
	Asked   time.Time `json:"asked_at"`
	Expires time.Time `json:"expires_at"`
	// Left is when the last caller stopped waiting for the answer. It is zero while a caller waits. It is only a note for
	// the person, so the encryption of the arguments does not cover it.
	Left    time.Time `json:"caller_left_at,omitzero"`
	Decider string    `json:"decided_by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	// Origin describes where doubtful arguments come from, one line for each. Like Arguments, it is nil once the
	// question is no longer pending.
	Origin []string `json:"origin,omitempty"`

	sealed, sealedOrigin, storedMAC []byte
}

// Over reports whether the question or its answer has expired.
func (q *Question) Over(now time.Time) bool { return !now.Before(q.Expires) }

// These limits apply to the pending questions of one agent and principal. They protect the person and the store from
// a flood of questions. The arguments of one call can use at most half of maxPendingBytes.
const (
	maxPending      = 50
	maxPendingBytes = 32 << 20
)

// Errors that callers can test for.
var (
	// ErrTooMany means that the agent and principal have too many pending questions, or that the arguments of these
	// questions are too large in total.
	ErrTooMany = errors.New("too many calls from this agent and principal are waiting for approval")
	// ErrUnknown means that there is no such question.
	ErrUnknown = errors.New("there is no approval with that id")
	// ErrDecided means that the question already has an answer.
	ErrDecided = errors.New("the call has already been approved or refused")
	// ErrOver means that the question has expired.
	ErrOver = errors.New("the approval request has expired")
)

// allColumns lists all columns of a question. noArguments is the same list with NULL in place of the encrypted
// arguments, which can be large and slow to decrypt.
const (
	commonColumns = `id, agent, digest, tool, principal, call, state, asked, expires, decider, reason, left_at, mac, `
	allColumns    = commonColumns + `sealed, origin`
	noArguments   = commonColumns + `CAST(NULL AS BYTEA), CAST(NULL AS BYTEA)`
)

func scan(row state.Row) (*Question, error) {
	q := &Question{}
	var asked, expires, left int64
	var s string
	err := row.Scan(&q.ID, &q.Agent, &q.Digest, &q.Tool, &q.Principal, &q.Call, &s, &asked, &expires, &q.Decider,
		&q.Reason, &left, &q.storedMAC, &q.sealed, &q.sealedOrigin)
	if left != 0 {
		q.Left = time.UnixMicro(left)
	}
	q.State, q.Asked, q.Expires = State(s), time.UnixMicro(asked), time.UnixMicro(expires)
	return q, err
}

// mac returns a MAC of everything that an approval is bound to.
func (q *Question) mac(b *store.Store) []byte {
	mac := b.Keys.MAC(q.macPurpose(), q.Arguments)
	return mac[:]
}

func (q *Question) macPurpose() string {
	bound, err := json.Marshal([]string{q.Agent, q.Digest, q.Tool, q.Principal})
	if err != nil {
		panic(err) // strings always marshal
	}
	return "approval " + string(bound)
}

// row returns the approval as a row of the register.
func (q *Question) row() authority.Row {
	content, err := json.Marshal([]any{q.storedMAC, q.Decider, q.Expires.UnixMicro()})
	if err != nil {
		panic(err) // bytes, strings and numbers always marshal
	}
	return authority.Row{Kind: authority.Approval, ID: q.ID, Content: content, Until: q.Expires}
}

// approved reports whether the question was approved and the approval is still in the register.
func (q *Question) approved(v *authority.View) bool {
	return q.State == Approved && v.Has(q.row())
}

// Find searches the questions about calls that are identical to the call of q. It returns the newest question that is
// pending or approved and has not expired, or nil if there is none.
func Find(tx state.Tx, b *store.Store, q *Question, now time.Time) (found *Question, err error) {
	v, err := b.Authority.View(tx)
	if err != nil {
		return nil, err
	}
	mac := q.mac(b)
	err = tx.Query(`SELECT `+noArguments+` FROM approvals WHERE mac = $1 AND state IN ('pending', 'approved')
AND expires > $2 ORDER BY asked DESC`, []any{mac, now.UnixMicro()}, func(row state.Row) error {
		same, err := scan(row)
		if found == nil && bytes.Equal(same.storedMAC, mac) && (same.State == Pending || same.approved(v)) {
			found = same
		}
		return err
	})
	return found, err
}

// Ask stores the question q and returns it. If an identical call already has a pending or approved question, Ask
// returns that question instead. If a person denied an identical call and no caller got the denial, Ask returns that
// question once.
func Ask(ctx context.Context, b *store.Store, q *Question) (asked *Question, err error) {
	err = b.DB.Write(ctx, func(tx state.Tx) (err error) {
		if asked, err = Find(tx, b, q, q.Asked); err == nil && asked == nil {
			asked, err = findDenied(tx, b, q)
		}
		if asked != nil {
			_, err = tx.Exec(`UPDATE approvals SET waiting = waiting + 1, left_at = NULL,
heard = CASE WHEN state = 'denied' THEN 1 ELSE heard END WHERE id = $1`, asked.ID)
		}
		if err != nil || asked != nil {
			return err
		}
		sealed, origin := b.Keys.Seal(q.purpose(), q.Arguments), q.sealOrigin(b)
		if err = checkBounds(tx, q, len(sealed)+len(strings.Join(q.Origin, "\n"))); err != nil {
			return err
		}
		asked = q
		_, err = tx.Exec(`INSERT INTO approvals (id, agent, digest, tool, principal, call, mac, sealed, state, asked, expires, origin)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9, $10, $11)`,
			q.ID, q.Agent, q.Digest, q.Tool, q.Principal, q.Call, q.mac(b), sealed, q.Asked.UnixMicro(), q.Expires.UnixMicro(), origin)
		return err
	})
	return asked, err
}

// findDenied returns the newest denied question about the call of q, or nil. It skips a question if a caller has
// already got the denial.
func findDenied(tx state.Tx, b *store.Store, q *Question) (found *Question, err error) {
	mac := q.mac(b)
	err = tx.Query(`SELECT `+noArguments+` FROM approvals WHERE mac = $1 AND state = 'denied' AND heard IS NULL
AND expires > $2 ORDER BY asked DESC LIMIT 1`, []any{mac, q.Asked.UnixMicro()}, func(row state.Row) error {
		found, err = scan(row)
		return err
	})
	return found, err
}

// Leave records that a call no longer waits for the answer to a question. The parameter denied reports whether the
// caller got a person's denial.
func Leave(ctx context.Context, b *store.Store, id string, denied bool, now time.Time) error {
	return b.DB.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`UPDATE approvals SET waiting = waiting - 1,
left_at = CASE WHEN waiting <= 1 AND state = 'pending' THEN CAST($1 AS BIGINT) ELSE left_at END WHERE id = $2`,
			now.UnixMicro(), id)
		if err != nil || !denied {
			return err
		}
		_, err = tx.Exec(`UPDATE approvals SET heard = 1 WHERE id = $1 AND state = 'denied'`, id)
		return err
	})
}

// countWaiting casts the sum to BIGINT, because PostgreSQL returns a sum as NUMERIC.
const countWaiting = `SELECT COUNT(*), CAST(COALESCE(SUM(LENGTH(sealed) + COALESCE(LENGTH(origin), 0)), 0) AS BIGINT) FROM approvals
WHERE agent = $1 AND principal = $2 AND state = 'pending' AND expires > $3`

// checkBounds returns ErrTooMany if storing the new question would exceed the limits of its agent and principal.
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
		return fmt.Errorf("%w: with this call, the arguments of the waiting calls would exceed %d MiB in total",
			ErrTooMany, maxPendingBytes>>20)
	}
	// Expired questions do not count toward the limits, so delete their arguments. Otherwise the store could grow without
	// bound.
	_, err = tx.Exec(`UPDATE approvals SET sealed = NULL, origin = NULL WHERE agent = $1 AND principal = $2 AND expires <= $3
AND sealed IS NOT NULL`,
		q.Agent, q.Principal, q.Asked.UnixMicro())
	return err
}

// purpose returns the purpose string with which the arguments are encrypted. It covers everything else that the person
// sees: the call, the times and a hash of the origin. If any of these is changed in the store, the arguments can no
// longer be decrypted. So a question about another tool with the same arguments cannot replace the question that the
// person has read.
func (q *Question) purpose() string {
	p := fmt.Sprintf("arguments of %s %q of call %q, asked at %d until %d",
		q.macPurpose(), q.ID, q.Call, q.Asked.UnixMicro(), q.Expires.UnixMicro())
	if len(q.Origin) > 0 {
		p += fmt.Sprintf(", origin %x", sha256.Sum256([]byte(strings.Join(q.Origin, "\n"))))
	}
	return p
}

func (q *Question) originPurpose() string { return "origin of approval " + q.ID }

// sealOrigin returns the encrypted lines of the origin, or nil if there are none.
func (q *Question) sealOrigin(b *store.Store) any {
	if len(q.Origin) == 0 {
		return nil
	}
	return b.Keys.Seal(q.originPurpose(), []byte(strings.Join(q.Origin, "\n")))
}

// Get returns a question. Its arguments are included only while the question is pending.
func Get(ctx context.Context, b *store.Store, id string) (found *Question, err error) {
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		found, err = get(tx, allColumns, id)
		return err
	})
	if err == nil && !found.decryptArguments(b) {
		err = ErrUnknown
	}
	return found, err
}

// Look returns a question without its arguments. The gateway calls Look repeatedly while a call waits for an answer.
func Look(ctx context.Context, b *store.Store, id string) (found *Question, err error) {
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		found, err = get(tx, noArguments, id)
		return err
	})
	return found, err
}

func get(tx state.Tx, columns, id string) (found *Question, err error) {
	err = tx.Query(`SELECT `+columns+` FROM approvals WHERE id = $1`, []any{id}, func(row state.Row) (err error) {
		found, err = scan(row)
		return err
	})
	if err == nil && (found == nil || found.ID != id) {
		err = ErrUnknown
	}
	return found, err
}

// decryptArguments decrypts the arguments of a question. It does nothing if the query did not select them. It returns
// false if something other than ambit wrote or changed the question.
func (q *Question) decryptArguments(b *store.Store) bool {
	if q.sealed == nil {
		return q.State != Pending || q.Over(time.Now())
	}
	if q.sealedOrigin != nil {
		origin, err := b.Keys.OpenKept(q.originPurpose(), q.sealedOrigin)
		if err != nil {
			return false
		}
		q.Origin, q.sealedOrigin = strings.Split(string(origin), "\n"), nil
	}
	arguments, err := b.Keys.OpenKept(q.purpose(), q.sealed)
	q.Arguments, q.sealed = arguments, nil
	return err == nil && b.Keys.SameMAC(q.macPurpose(), arguments, q.storedMAC)
}

// List returns the pending questions with their arguments, oldest first. It leaves out questions that something other
// than ambit wrote or changed.
func List(ctx context.Context, b *store.Store, now time.Time) ([]*Question, error) {
	list, err := waiting(ctx, b, allColumns, now)
	return slices.DeleteFunc(list, func(q *Question) bool { return !q.decryptArguments(b) }), err
}

// Waiting returns the pending questions without their arguments, oldest first.
func Waiting(ctx context.Context, b *store.Store, now time.Time) ([]*Question, error) {
	return waiting(ctx, b, noArguments, now)
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

// maxReason is the maximum number of bytes of a reason in the journal.
const maxReason = 300

// Decide answers a pending question and records the answer in the journal. It returns ErrDecided if the question
// already has an answer, and ErrOver if it has expired.
func Decide(ctx context.Context, b *store.Store, id string, yes bool, who, reason string) error {
	return b.DB.Write(ctx, func(tx state.Tx) error {
		q, err := get(tx, allColumns, id)
		now := time.Now()
		switch {
		case err != nil:
			return err
		case q.State != Pending:
			return ErrDecided
		case q.Over(now):
			return ErrOver
		case !q.decryptArguments(b):
			return ErrUnknown
		}
		s, decision, said := Denied, journal.Deny, "refused by "
		if yes {
			s, decision, said = Approved, journal.Allow, "approved by "
		}
		n, err := tx.Exec(`UPDATE approvals SET state = $1, decider = $2, decided = $3, reason = $4, sealed = NULL, origin = NULL
WHERE id = $5 AND state = 'pending'`,
			string(s), who, now.UnixMicro(), reason, id)
		if err == nil && n == 0 {
			err = ErrDecided
		}
		if q.Decider = who; err == nil && yes {
			err = b.Authority.Put(tx, q.row())
		}
		if err != nil {
			return err
		}
		detail := "a call by " + q.Principal + " was " + said + who
		if reason != "" {
			detail += ": " + diag.Cut(reason, maxReason)
		}
		_, err = b.Journal.Append(tx, &journal.Record{
			Time: now, Call: id, Parent: q.Call, Agent: q.Agent, Digest: q.Digest, Principal: who, Tool: q.Tool,
			Decision: decision, Stage: "approve", Detail: detail,
		})
		return err
	})
}

// Use marks an approval as used and reports whether it was still valid for the given call. The gateway calls Use in the
// transaction that it commits before it sends the call. Use compares the row with the call, because an attacker who can
// change the store could have copied the approval of another call to this row.
func Use(tx state.Tx, b *store.Store, id string, made *Question, now time.Time) (bool, error) {
	q, err := get(tx, noArguments, id)
	if errors.Is(err, ErrUnknown) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v, err := b.Authority.View(tx)
	if err != nil || !q.approved(v) || q.Over(now) || !bytes.Equal(q.storedMAC, made.mac(b)) {
		return false, err
	}
	if _, err := tx.Exec(`UPDATE approvals SET state = 'used' WHERE id = $1`, id); err != nil {
		return false, err
	}
	_, err = b.Authority.Remove(tx, authority.Approval, id)
	return err == nil, err
}

// Claims returns the approvals that are valid according to their rows. It does not check whether the register contains
// the approvals.
func Claims(tx state.Tx) (rows []authority.Row, err error) {
	err = tx.Query(`SELECT `+noArguments+` FROM approvals WHERE state = 'approved' AND expires > $1`,
		[]any{time.Now().UnixMicro()}, func(row state.Row) error {
			q, err := scan(row)
			r := q.row()
			r.Gives = fmt.Sprintf("%s may call %s of the agent %s once, approved by %s, %s",
				q.Principal, q.Tool, q.Agent, q.Decider, authority.UntilText(q.Expires))
			rows = append(rows, r)
			return err
		})
	return rows, err
}

// Kept is how long an expired question stays in the store. The journal keeps every decision permanently.
const Kept = 24 * time.Hour

// Forget deletes questions that have been expired for longer than [Kept]. If a question expired more recently, Forget
// deletes only its arguments. The parameter batch is the maximum number of questions to delete or change. Forget
// returns the actual number.
func Forget(ctx context.Context, b *store.Store, now time.Time, batch int) (n int, err error) {
	before := now.Add(-Kept).UnixMicro()
	var ids []string
	// Search in a read transaction first, because a read transaction does not block writers.
	err = b.DB.Read(ctx, func(tx state.Tx) error {
		ids = nil
		return tx.Query(`SELECT id FROM approvals WHERE expires < $1 OR expires <= $2 AND sealed IS NOT NULL LIMIT $3`,
			[]any{before, now.UnixMicro(), int64(batch)}, func(row state.Row) error {
				var id string
				err := row.Scan(&id)
				ids = append(ids, id)
				return err
			})
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		n = 0
		for _, id := range ids {
			gone, err := tx.Exec(`DELETE FROM approvals WHERE id = $1 AND expires < $2`, id, before)
			if err == nil && gone == 0 {
				gone, err = tx.Exec(`UPDATE approvals SET sealed = NULL, origin = NULL WHERE id = $1 AND expires <= $2`, id, now.UnixMicro())
			}
			if err != nil {
				return err
			}
			n += int(gone)
		}
		return nil
	})
	return n, err
}
