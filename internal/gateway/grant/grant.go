// Package grant stores the capabilities of principals.
//
// A grant allows a principal one action, either for every agent or for the agent with a given id. Actions match
// exactly, and there are no wildcards. A grant ends when it expires or is revoked. Its row stays in the store until
// the same action is granted again.
//
// A grant is valid only while the register of authority contains its unmodified row. An attacker who can write to the
// store but has no root key cannot create, widen, extend, transfer or restore a grant. A modified grant has no effect,
// and the refusal of a call reports the modification.
package grant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Grant is one capability of one principal.
type Grant struct {
	// Subject is the principal that holds the capability.
	Subject string
	// Action is the granted action. It belongs to one of the reserved namespaces.
	Action string
	// Scope is the id of the agent that the grant applies to. If Scope is empty, the grant applies to every agent.
	Scope string
	// GrantedBy is the owner who granted the capability. Granted is the time of the grant.
	GrantedBy string
	Granted   time.Time
	// Expires is zero if the grant does not expire.
	Expires time.Time
	// Revoked is zero if the grant was not revoked.
	Revoked time.Time
	// Changed is set if the grant is not revoked and the register does not contain its row. Such a grant has no effect.
	Changed bool
}

// State returns "active", "changed", "revoked" or "expired".
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

// row returns the grant as a row of the register.
func (g *Grant) row() authority.Row {
	content, err := json.Marshal([]any{g.GrantedBy, state.Micros(g.Granted), state.Micros(g.Expires)})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return authority.Row{
		Kind: authority.Grant, ID: authority.ID(g.Subject, g.Action, g.Scope), Content: content, Until: g.Expires,
	}
}

// Problems lists the problems with a requested grant.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "; ") }

// maxText is the maximum length of an action in bytes.
const maxText = 256

// check returns the [Problems] with a requested grant, or nil.
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

// checkAction returns the reason why an action cannot be granted, or "".
func checkAction(action string) string {
	namespace, names, _ := strings.Cut(action, ".")
	switch {
	case !slices.Contains(agent.ActionNamespaces, namespace):
		return "is outside the reserved namespaces " + strings.Join(agent.ActionNamespaces, "., ") + "."
	case names == "" || slices.Contains(strings.Split(names, "."), ""):
		return "is incomplete: the form of an action is NAMESPACE.NAME"
	case strings.Contains(action, "*"):
		return "contains a *, but a grant names exactly one action"
	case len(action) > maxText || !identity.ValidName(action):
		return "is too long or has invalid characters"
	}
	return ""
}

// Grants is a handle for reading and changing the grants in one store.
type Grants struct {
	store *store.Store
	now   func() time.Time
}

// Of returns a [Grants] for the given store.
func Of(b *store.Store) *Grants { return &Grants{store: b, now: time.Now} }

const columns = `subject, action, scope, granted_by, granted, expires, revoked`

// query returns the grants for which the include callback returns true.
func (s *Grants) query(tx state.Tx, include func(*Grant) bool, where string, args ...any) ([]*Grant, error) {
	v, err := s.store.Authority.View(tx)
	if err != nil {
		return nil, err
	}
	return query(tx, v, include, where, args...)
}

func query(
	tx state.Tx, v *authority.View, include func(*Grant) bool, where string, args ...any,
) (list []*Grant, err error) {
	err = tx.Query(`SELECT `+columns+` FROM grants `+where+` ORDER BY subject, action, scope`,
		args, func(row state.Row) error {
			g := &Grant{}
			var granted, expires, revoked int64
			err := row.Scan(&g.Subject, &g.Action, &g.Scope, &g.GrantedBy, &granted, &expires, &revoked)
			if err != nil {
				return err
			}
			if !include(g) {
				return nil
			}
			g.Granted, g.Expires, g.Revoked = state.Instant(granted), state.Instant(expires), state.Instant(revoked)
			g.Changed = revoked == 0 && !v.Has(g.row())
			list = append(list, g)
			return nil
		})
	return list, err
}

// List returns all grants, including expired and revoked grants.
func (s *Grants) List(ctx context.Context) (list []*Grant, err error) {
	err = s.store.DB.Read(ctx, func(tx state.Tx) (err error) {
		list, err = s.query(tx, func(*Grant) bool { return true }, "")
		return err
	})
	return list, err
}

// For returns a [Held] for the agent with the given id.
func (s *Grants) For(agentID string) *Held { return &Held{s, agentID} }

// Held reports which capabilities principals hold for one agent.
type Held struct {
	grants *Grants
	agent  string
}

// ErrChanged means that something other than ambit wrote a grant.
var ErrChanged = errors.New("the grant in the store was modified by something other than ambit")

// Missing returns the given actions that the principal does not hold. The error is ErrChanged if an action is missing
// because its grant was modified. If ctx contains a transaction of the gateway, Missing reads in that transaction.
func (h *Held) Missing(ctx context.Context, principal string, actions []string) (missing []string, err error) {
	var list []*Grant
	counts := func(g *Grant) bool {
		return g.Subject == principal && (g.Scope == "" || g.Scope == h.agent) && slices.Contains(actions, g.Action)
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
		if slices.ContainsFunc(list, func(g *Grant) bool { return g.Action == action && g.State(now) == Active }) {
			continue
		}
		missing = append(missing, action)
		if slices.ContainsFunc(list, func(g *Grant) bool { return g.Action == action && g.Changed }) {
			changed = append(changed, action)
		}
	}
	if len(changed) > 0 {
		err = fmt.Errorf("%w (%s)", ErrChanged, strings.Join(changed, ", "))
	}
	return missing, err
}
