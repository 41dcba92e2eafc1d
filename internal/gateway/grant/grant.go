// Package grant stores the capabilities of principals.
//
// A grant gives a principal one action, for every agent or for one agent, named by its
// id. Actions match exactly; there are no wildcards, so a grant gives no more than its
// text shows. A grant ends when it expires or is revoked, and its row stays until the
// same action is granted again.
//
// Every grant is signed with the key of this ambit over its whole row, including its
// expiry, and the signature is checked on every use and listing. So an attacker who can
// write to the store without the key cannot create, widen, extend or transfer a grant. A
// modified row has no effect, and the call's refusal reports it. A signature does not
// detect a deleted row, or an old row that was restored; the journal does, because it
// records every grant and revocation.
package grant

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Grant is one capability of one principal.
type Grant struct {
	// Subject is the principal that holds it.
	Subject string
	// Action is the granted action, in one of the reserved namespaces.
	Action string
	// Scope is the id of the only agent that it applies to; empty means every agent.
	Scope string
	// GrantedBy is the owner who granted it, at Granted.
	GrantedBy string
	Granted   time.Time
	// Expires is zero if the grant does not expire.
	Expires time.Time
	// Revoked is zero if the grant was not revoked.
	Revoked time.Time
	// Changed is set if the signature does not match; such a grant has no effect.
	Changed bool
}

// State returns active, changed, revoked or expired.
func (g *Grant) State(now time.Time) string {
	switch {
	case g.Changed:
		return "changed"
	case !g.Revoked.IsZero():
		return "revoked"
	case !g.Expires.IsZero() && !now.Before(g.Expires):
		return "expired"
	}
	return Active
}

// Active is the state of a grant that is in force.
const Active = "active"

// bytes returns the signed bytes: a name for the format, every text with its length,
// and the times.
func (g *Grant) bytes() []byte {
	b := []byte("ambit grant v1\n")
	for _, s := range []string{g.Subject, g.Action, g.Scope, g.GrantedBy} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	for _, t := range []time.Time{g.Granted, g.Expires, g.Revoked} {
		b = binary.BigEndian.AppendUint64(b, uint64(state.Micros(t)))
	}
	return b
}

// Problems are the problems of a requested grant.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "; ") }

// maxText bounds actions and scopes.
const maxText = 256

// check returns the [Problems] of grants of actions to a subject.
func check(subject string, actions []string, scope string) error {
	var p Problems
	add := func(format string, args ...any) { p = append(p, fmt.Sprintf(format, args...)) }
	if !identity.ValidName(subject) {
		add("%s cannot be the name of a principal", diag.Quote(subject))
	}
	if scope != "" && !identity.ValidName(scope) {
		add("the scope %s cannot be the id of an agent", diag.Quote(scope))
	}
	if len(actions) == 0 {
		add("no action is given")
	}
	for i, action := range actions {
		if problem := checkAction(action); problem != "" {
			add("%s %s", diag.Quote(action), problem)
		} else if slices.Contains(actions[:i], action) {
			add("%s is named twice", diag.Quote(action))
		}
	}
	if len(p) > 0 {
		return p
	}
	return nil
}

// checkAction returns why an action cannot be granted; empty if it can.
func checkAction(action string) string {
	namespace, names, _ := strings.Cut(action, ".")
	switch {
	case !slices.Contains(agent.ActionNamespaces, namespace):
		return "is outside the reserved namespaces " + strings.Join(agent.ActionNamespaces, "., ") + "."
	case names == "" || slices.Contains(strings.Split(names, "."), ""):
		return "has a part missing"
	case strings.Contains(action, "*"):
		return "contains a *: a grant names exactly one action"
	case len(action) > maxText || !identity.ValidName(action):
		return "is too long or has invalid characters"
	}
	return ""
}

// Grants are the grants in one store.
type Grants struct {
	store *store.Store
	now   func() time.Time
}

// Of returns the grants in a store.
func Of(b *store.Store) *Grants { return &Grants{store: b, now: time.Now} }

const columns = `subject, action, scope, granted_by, granted, expires, revoked, signature`

// query reads the grants that include accepts, and checks the signature of each.
func (s *Grants) query(tx state.Tx, include func(*Grant) bool, where string, args ...any) (list []*Grant, err error) {
	public := s.store.Keys.Signer().Public().(ed25519.PublicKey)
	err = tx.Query(`SELECT `+columns+` FROM grants `+where+` ORDER BY subject, action, scope`,
		args, func(row state.Row) error {
			g := &Grant{}
			var granted, expires, revoked int64
			var signature []byte
			err := row.Scan(&g.Subject, &g.Action, &g.Scope, &g.GrantedBy, &granted, &expires, &revoked, &signature)
			if err != nil {
				return err
			}
			if !include(g) {
				return nil
			}
			g.Granted, g.Expires, g.Revoked = state.Instant(granted), state.Instant(expires), state.Instant(revoked)
			g.Changed = !ed25519.Verify(public, g.bytes(), signature)
			list = append(list, g)
			return nil
		})
	return list, err
}

// List returns every grant, including those that have ended.
func (s *Grants) List(ctx context.Context) (list []*Grant, err error) {
	err = s.store.DB.Read(ctx, func(tx state.Tx) (err error) {
		list, err = s.query(tx, func(*Grant) bool { return true }, "")
		return err
	})
	return list, err
}

// For returns the grants that apply to the agent with this id.
func (s *Grants) For(agentID string) *Held { return &Held{s, agentID} }

// Held reports the capabilities of principals towards one agent.
type Held struct {
	grants *Grants
	agent  string
}

// ErrChanged means that a grant in the store does not match its signature.
var ErrChanged = errors.New("the grant in the store was modified, or signed by another ambit")

// Missing returns the actions that a principal does not hold. The error is one of the
// store, or ErrChanged if a modified grant is the reason. Inside a transaction of the
// gateway it reads in that transaction.
func (h *Held) Missing(ctx context.Context, principal string, actions []string) (missing []string, err error) {
	var list []*Grant
	counts := func(g *Grant) bool {
		return (g.Scope == "" || g.Scope == h.agent) && slices.Contains(actions, g.Action)
	}
	err = state.Look(ctx, h.grants.store.DB, func(tx state.Tx) (err error) {
		list, err = h.grants.query(tx, counts, `WHERE subject = $1`, principal)
		return err
	})
	if err != nil {
		return nil, err
	}
	now := h.grants.now()
	var changed []string
	for _, action := range actions {
		held, modified := false, false
		for _, g := range list {
			if g.Action == action {
				held = held || g.State(now) == Active
				modified = modified || g.Changed
			}
		}
		if held {
			continue
		}
		missing = append(missing, action)
		if modified {
			changed = append(changed, action)
		}
	}
	if len(changed) > 0 {
		err = fmt.Errorf("%w (%s)", ErrChanged, strings.Join(changed, ", "))
	}
	return missing, err
}
