package grant

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// maxGrants is the maximum number of grants for one principal. The number is limited because each call reads all grants
// of its principal.
const maxGrants = 1000

const stage = "grant"

// Asked is a request to grant actions.
type Asked struct {
	Subject string
	Actions []string
	// Scope is the id of the agent that the grants apply to. If Scope is empty, the grants apply to every agent.
	Scope string
	// Expires is zero for grants that do not expire.
	Expires time.Time
}

// Give grants all requested actions and replaces earlier grants of the same actions. If the request is invalid, Give
// returns [Problems] and grants nothing.
func (s *Grants) Give(ctx context.Context, a Asked, by string) (given []*Grant, err error) {
	if err := check(a.Subject, a.Actions, a.Scope); err != nil {
		return nil, err
	}
	now := s.now()
	if !a.Expires.IsZero() && !now.Before(a.Expires) {
		return nil, Problems{"the expiry is in the past"}
	}
	var rows []authority.Row
	for _, action := range a.Actions {
		// The store keeps times in microseconds, so round them.
		g := &Grant{
			Subject: a.Subject, Action: action, Scope: a.Scope, GrantedBy: by,
			Granted: state.Instant(state.Micros(now)), Expires: state.Instant(state.Micros(a.Expires)),
		}
		given, rows = append(given, g), append(rows, g.row())
	}
	err = s.store.DB.Write(ctx, func(tx state.Tx) error {
		for _, g := range given {
			if err := s.put(tx, g); err != nil {
				return err
			}
		}
		if err := s.store.Authority.Put(tx, rows...); err != nil {
			return err
		}
		var n int64
		err := tx.Query(`SELECT COUNT(*) FROM grants WHERE subject = $1`,
			[]any{a.Subject}, func(row state.Row) error { return row.Scan(&n) })
		if err == nil && n > maxGrants {
			err = Problems{fmt.Sprintf("a principal can hold at most %d grants", maxGrants)}
		}
		if err != nil {
			return err
		}
		return s.record(tx, "grant", by, now, fmt.Sprintf("%s was granted %s%s%s",
			a.Subject, strings.Join(a.Actions, ", "), scoped(a.Scope), until(a.Expires)))
	})
	if err != nil {
		return nil, err
	}
	return given, nil
}

// upsert leaves the column signature empty. It contained a signature before the register of authority existed.
const upsert = `INSERT INTO grants (` + columns + `, signature) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (subject, action, scope) DO UPDATE SET granted_by = excluded.granted_by, granted = excluded.granted,
expires = excluded.expires, revoked = excluded.revoked, signature = excluded.signature`

func (s *Grants) put(tx state.Tx, g *Grant) error {
	_, err := tx.Exec(upsert, g.Subject, g.Action, g.Scope, g.GrantedBy,
		state.Micros(g.Granted), state.Micros(g.Expires), state.Micros(g.Revoked), []byte{})
	return err
}

// NotHeld lists actions that cannot be revoked because the principal does not hold them.
type NotHeld []string

func (n NotHeld) Error() string { return strings.Join(n, ", ") }

// Revoke revokes all grants of the given actions. If scope is not empty, it revokes only the grants with this scope. If
// the principal does not hold one of the actions, Revoke returns [NotHeld] and revokes nothing.
func (s *Grants) Revoke(
	ctx context.Context, subject string, actions []string, scope, by string,
) (revoked []*Grant, err error) {
	err = s.store.DB.Write(ctx, func(tx state.Tx) error {
		revoked = nil
		now := state.Instant(state.Micros(s.now()))
		list, err := s.query(tx, func(g *Grant) bool { return slices.Contains(actions, g.Action) },
			`WHERE subject = $1`, subject)
		if err != nil {
			return err
		}
		var absent NotHeld
		for _, action := range actions {
			entries, err := s.store.Authority.RemoveFunc(tx, authority.Grant, func(id string) bool {
				p := authority.Parts(id)
				return len(p) == 3 && p[0] == subject && p[1] == action && (scope == "" || p[2] == scope)
			})
			if err != nil {
				return err
			}
			found := entries > 0
			for _, g := range list {
				if g.Action != action || scope != "" && g.Scope != scope || !g.Changed && g.State(now) != Active {
					continue
				}
				found = true
				if err := s.revokeGrant(tx, g, now); err != nil {
					return err
				}
				revoked = append(revoked, g)
			}
			if !found {
				absent = append(absent, action)
			}
		}
		if len(absent) > 0 {
			return absent
		}
		return s.record(tx, "revoke", by, now,
			fmt.Sprintf("%s no longer has %s%s", subject, strings.Join(actions, ", "), scoped(scope)))
	})
	if err != nil {
		return nil, err
	}
	return revoked, nil
}

// revokeGrant revokes a grant. If something other than ambit modified the grant's row, revokeGrant deletes the row
// instead, so that the values in it are not kept.
func (s *Grants) revokeGrant(tx state.Tx, g *Grant, now time.Time) error {
	if g.Changed {
		_, err := tx.Exec(`DELETE FROM grants WHERE subject = $1 AND action = $2 AND scope = $3`,
			g.Subject, g.Action, g.Scope)
		return err
	}
	g.Revoked = now
	return s.put(tx, g)
}

func (s *Grants) record(tx state.Tx, verb, by string, at time.Time, detail string) error {
	var id [16]byte
	rand.Read(id[:]) // never fails
	_, err := s.store.Journal.Append(tx, &journal.Record{
		Time: at, Call: hex.EncodeToString(id[:]), Principal: by, Tool: verb, Decision: journal.Allow, Stage: stage,
		Detail: detail,
	})
	return err
}

func scoped(scope string) string {
	if scope == "" {
		return ""
	}
	return " for " + scope
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.UTC().Format(time.RFC3339)
}

// Claims returns the grants that are valid according to their rows. It does not check whether the register contains
// the grants.
func Claims(tx state.Tx) (rows []authority.Row, err error) {
	list, err := query(tx, &authority.View{}, func(*Grant) bool { return true }, "")
	for _, g := range list {
		g.Changed = false // an empty view of the register marks every grant as changed
		if g.State(time.Now()) == Active {
			row := g.row()
			row.Gives = fmt.Sprintf("%s has %s%s, granted by %s, %s",
				g.Subject, g.Action, cmp.Or(scoped(g.Scope), " for all agents"), g.GrantedBy, authority.UntilText(g.Expires))
			rows = append(rows, row)
		}
	}
	return rows, err
}
