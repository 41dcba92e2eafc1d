// Package grant keeps who was granted which capability.
//
// A grant says that a principal holds one action: everywhere, or in the scope of
// one agent, named by its id. Actions are compared as a whole; there are no
// wildcards, so that what was granted is what was read. It ends when it expires
// or is revoked, and stays on record until the same is granted anew.
//
// Every grant is signed with the key of this ambit over all that its row says,
// its end included, and the signature is checked whenever the grant is used or
// shown. So whoever can write to the store, and has not the key, cannot make a
// grant, widen one, prolong one, or give it to somebody else; a row that was
// changed counts for nothing, and whoever asks is told. What a signature cannot
// show is that a whole row was taken away, or put back as it once was: that is
// what the journal is for, which has every grant and revocation.
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
	// Action is what it lets do, in one of the reserved namespaces.
	Action string
	// Scope is the id of the only agent that it counts for; empty is every agent.
	Scope string
	// GrantedBy is the owner who gave it, and Granted when.
	GrantedBy string
	Granted   time.Time
	// Expires is when it ends; zero is never.
	Expires time.Time
	// Revoked is when it was, zero if it was not.
	Revoked time.Time
	// Changed is set if its signature does not match: it counts for nothing.
	Changed bool
}

// State says in one word whether a grant is in force.
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

// bytes are what is signed: a name for the format, every text with its length,
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

// Problems are everything that is wrong with a requested grant.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "; ") }

// maxText bounds actions and scopes; names of principals have their own bound.
const maxText = 256

// check finds everything that is wrong with grants of actions to a subject.
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
		add("there is no action")
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
		return "holds a *: a grant is of one action, by its whole name"
	case len(action) > maxText || !identity.ValidName(action):
		return "is too long, or has characters that no action has"
	}
	return ""
}

// Grants are those of one store.
type Grants struct {
	books *store.Store
	now   func() time.Time
}

// Of are the grants in the store of some books.
func Of(b *store.Store) *Grants { return &Grants{books: b, now: time.Now} }

const columns = `subject, action, scope, granted_by, granted, expires, revoked, signature`

// query reads the grants that are wanted, and checks the signature of each.
func (s *Grants) query(tx state.Tx, wanted func(*Grant) bool, where string, args ...any) (list []*Grant, err error) {
	public := s.books.Keys.Signer().Public().(ed25519.PublicKey)
	err = tx.Query(`SELECT `+columns+` FROM grants `+where+` ORDER BY subject, action, scope`,
		args, func(row state.Row) error {
			g := &Grant{}
			var granted, expires, revoked int64
			var signature []byte
			if err := row.Scan(&g.Subject, &g.Action, &g.Scope, &g.GrantedBy, &granted, &expires, &revoked, &signature); err != nil {
				return err
			}
			if !wanted(g) {
				return nil
			}
			g.Granted, g.Expires, g.Revoked = state.Instant(granted), state.Instant(expires), state.Instant(revoked)
			g.Changed = !ed25519.Verify(public, g.bytes(), signature)
			list = append(list, g)
			return nil
		})
	return list, err
}

// List is every grant, also those that have ended.
func (s *Grants) List(ctx context.Context) (list []*Grant, err error) {
	err = s.books.DB.Read(ctx, func(tx state.Tx) (err error) {
		list, err = s.query(tx, func(*Grant) bool { return true }, "")
		return err
	})
	return list, err
}

// For returns the grants that count for one agent, by the agent's id.
func (s *Grants) For(agentID string) *Held { return &Held{s, agentID} }

// Held reports who holds what towards one agent.
type Held struct {
	grants *Grants
	agent  string
}

// ErrChanged means that a grant in the store is not as it was signed.
var ErrChanged = errors.New("the grant in the store was changed, or signed by another ambit")

// Missing are those of the actions that a principal does not hold. The error is
// one of the store, or ErrChanged, if that is why an action is among them. Inside
// a transaction of the door it looks at what that sees.
func (h *Held) Missing(ctx context.Context, principal string, actions []string) (missing []string, err error) {
	var list []*Grant
	counts := func(g *Grant) bool {
		return (g.Scope == "" || g.Scope == h.agent) && slices.Contains(actions, g.Action)
	}
	err = state.Look(ctx, h.grants.books.DB, func(tx state.Tx) (err error) {
		list, err = h.grants.query(tx, counts, `WHERE subject = $1`, principal)
		return err
	})
	if err != nil {
		return nil, err
	}
	now := h.grants.now()
	var changed []string
	for _, action := range actions {
		held, spoilt := false, false
		for _, g := range list {
			if g.Action == action {
				held = held || g.State(now) == Active
				spoilt = spoilt || g.Changed
			}
		}
		if held {
			continue
		}
		missing = append(missing, action)
		if spoilt {
			changed = append(changed, action)
		}
	}
	if len(changed) > 0 {
		err = fmt.Errorf("%w (%s)", ErrChanged, strings.Join(changed, ", "))
	}
	return missing, err
}
