// Package allowance stores the rights that a person added for the tool servers of agents.
//
// The access of a server consists of the rights that the manifest implies (see [agent.Agent.Access]) and of the
// rights in this package. A manifest, a lock file or an extension can only propose rights, because all of them come
// from the author of the agent.
//
// An allowance belongs to the name of an agent, to the id in its manifest, and to the program of one server. All
// three must match, because a manifest can claim any id, and an agent can be replaced by another agent with the same
// name.
//
// An allowance has an effect only while the register of authority contains its unmodified row. An attacker who can
// write to the store but has no root key cannot create, widen, transfer or restore an allowance. A modified allowance
// has no effect and is reported.
package allowance

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Holder is the tool server that an allowance belongs to.
type Holder struct {
	// Agent is the name under which ambit knows the agent, and ID is the id in the agent's manifest.
	Agent, ID string
	// Server is the alias of the server, and Code identifies its program. A new version of a manifest can use the same
	// alias for another program, which the owner has not seen.
	Server, Code string
}

// Allowance is one right of one server.
type Allowance struct {
	Holder
	// Right is the added right. Its Reason is empty.
	Right agent.Right
	// By is the name of the owner who allowed the right, and At is the time.
	By string
	At time.Time
	// Changed is set if the register does not contain the row, or if the row belongs to another server than the requested
	// one. Such an allowance has no effect.
	Changed bool
}

// row returns the allowance as a row of the register.
func (a *Allowance) row() authority.Row {
	return authority.Row{Kind: authority.Allowance, ID: a.entry(), Content: []byte(authority.ID(
		strconv.FormatInt(state.Micros(a.At), 10), a.By))}
}

// entry returns the id of the allowance's row in the register.
func (a *Allowance) entry() string {
	return authority.ID(a.Agent, a.ID, a.Server, a.Code,
		string(a.Right.Kind), a.Right.What, strconv.FormatBool(a.Right.Private))
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Access returns the rights of the allowances that are in effect. The reason of each right says who allowed it. An
// allowance whose time is zero is a proposal.
func Access(list []*Allowance) agent.Access {
	var access agent.Access
	for _, a := range list {
		if !a.Changed {
			r := a.Right
			if r.Reason = "new"; !a.At.IsZero() {
				r.Reason = "allowed by " + a.By + " on " + a.At.UTC().Format(time.DateOnly)
			}
			access = append(access, r)
		}
	}
	return access
}

// Warnings returns one sentence for each allowance that was modified in the store.
func Warnings(list []*Allowance) (warnings []string) {
	for _, a := range list {
		if a.Changed {
			warnings = append(warnings, fmt.Sprintf("the allowance to %s was modified in the store by something other than "+
				"ambit, and has no effect; to remove it, run: ambit disallow %s %s --all",
				a.Right, diag.ShellWord(a.Agent), diag.ShellWord(a.Server)))
		}
	}
	return warnings
}

// Allowances reads and changes the allowances in one store.
type Allowances struct {
	store *store.Store
	now   func() time.Time
}

// Of returns an [Allowances] for a store.
func Of(b *store.Store) *Allowances { return &Allowances{store: b, now: time.Now} }

const columns = `agent, id, server, code, kind, what, private, allowed_by, allowed`

func (s *Allowances) query(tx state.Tx, where string, args ...any) ([]*Allowance, error) {
	v, err := s.store.Authority.View(tx)
	if err != nil {
		return nil, err
	}
	return query(tx, v, where, args...)
}

func query(tx state.Tx, v *authority.View, where string, args ...any) (list []*Allowance, err error) {
	err = tx.Query(`SELECT `+columns+` FROM allowances `+where+` ORDER BY agent, id, server, code, kind, what, private`,
		args, func(row state.Row) error {
			a := &Allowance{}
			var private, at int64
			var kind string
			err := row.Scan(&a.Agent, &a.ID, &a.Server, &a.Code, &kind, &a.Right.What, &private, &a.By, &at)
			a.Right.Kind, a.Right.Private, a.At = agent.RightKind(kind), private == 1, state.Instant(at)
			a.Changed = private != number(a.Right.Private) || !v.Has(a.row())
			list = append(list, a)
			return err
		})
	return list, err
}

const ofHolder = `WHERE agent = $1 AND id = $2 AND server = $3 AND code = $4`

// of returns the allowances of a server. It compares the holder of each row, because an attacker who controls the
// database can return registered rows of another server.
func (s *Allowances) of(tx state.Tx, h Holder) ([]*Allowance, error) {
	list, err := s.query(tx, ofHolder, h.Agent, h.ID, h.Server, h.Code)
	for _, a := range list {
		a.Changed = a.Changed || a.Holder != h
	}
	return list, err
}

// List returns the allowances of a server, including modified ones.
func (s *Allowances) List(ctx context.Context, h Holder) (list []*Allowance, err error) {
	err = s.store.DB.Read(ctx, func(tx state.Tx) (err error) {
		list, err = s.of(tx, h)
		return err
	})
	return list, err
}

// Digests returns a hash of all allowances of each agent that has some, by the name of the agent. The hash is different
// after every change.
func (s *Allowances) Digests(ctx context.Context) (map[string]string, error) {
	var list []*Allowance
	err := s.store.DB.Read(ctx, func(tx state.Tx) (err error) {
		list, err = s.query(tx, ``)
		return err
	})
	hashes := map[string]hash.Hash{}
	for _, a := range list {
		if hashes[a.Agent] == nil {
			hashes[a.Agent] = sha256.New()
		}
		fmt.Fprintf(hashes[a.Agent], "%t %s %s\n", a.Changed, a.entry(), a.row().Content)
	}
	digests := make(map[string]string, len(hashes))
	for name, h := range hashes {
		digests[name] = hex.EncodeToString(h.Sum(nil))
	}
	return digests, err
}

// maxRights is the maximum number of allowances of one server. The number is limited because each path becomes a mount.
const maxRights = 256

// ErrTooMany means that a server would have more allowances than ambit supports.
var ErrTooMany = fmt.Errorf("a tool server can have at most %d added rights", maxRights)

// Allow adds rights to a server. A right to write a path replaces the right to read the same path. An existing
// allowance of the same right is replaced, even if its row was modified.
func (s *Allowances) Allow(ctx context.Context, h Holder, rights agent.Access, by string) error {
	return s.store.DB.Write(ctx, func(tx state.Tx) error {
		now := state.Instant(state.Micros(s.now())) // the store rounds times to microseconds
		for _, r := range rights {
			r.Reason = ""
			if r.Kind == agent.CanWrite {
				if _, err := s.remove(tx, h, agent.Right{Kind: agent.CanRead, What: r.What}); err != nil {
					return err
				}
			}
			if err := s.put(tx, &Allowance{Holder: h, Right: r, By: by, At: now}); err != nil {
				return err
			}
		}
		list, err := s.of(tx, h)
		if err == nil && len(list) > maxRights {
			err = ErrTooMany
		}
		if err != nil {
			return err
		}
		return s.record(tx, "allow", by, now, h, fmt.Sprintf("server %s is allowed to %s", h.Server, texts(rights)))
	})
}

func (s *Allowances) put(tx state.Tx, a *Allowance) error {
	// The column signature is always empty. It was used before the register of authority existed.
	_, err := tx.Exec(`INSERT INTO allowances (`+columns+`, signature) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (agent, id, server, code, kind, what, private) DO UPDATE SET
allowed_by = excluded.allowed_by, allowed = excluded.allowed, signature = excluded.signature`,
		a.Agent, a.ID, a.Server, a.Code, string(a.Right.Kind), a.Right.What, number(a.Right.Private), a.By,
		state.Micros(a.At), []byte{})
	if err != nil {
		return err
	}
	return s.store.Authority.Put(tx, a.row())
}

// remove removes a right and reports whether the register contained it.
func (s *Allowances) remove(tx state.Tx, h Holder, r agent.Right) (registered bool, err error) {
	_, err = tx.Exec(`DELETE FROM allowances `+ofHolder+` AND kind = $5 AND what = $6 AND private = $7`,
		h.Agent, h.ID, h.Server, h.Code, string(r.Kind), r.What, number(r.Private))
	if err != nil {
		return false, err
	}
	return s.store.Authority.Remove(tx, authority.Allowance, (&Allowance{Holder: h, Right: r}).entry())
}

// unregister removes from the register all allowances whose ids start with the given values.
func (s *Allowances) unregister(tx state.Tx, values ...string) (int, error) {
	return s.store.Authority.RemoveFunc(tx, authority.Allowance, func(id string) bool {
		parts := authority.Parts(id)
		return len(parts) >= len(values) && slices.Equal(parts[:len(values)], values)
	})
}

// NotAllowed lists rights that cannot be removed because they were never added.
type NotAllowed agent.Access

func (n NotAllowed) Error() string { return texts(agent.Access(n)) }

// Disallow removes rights of a server, even if their rows were modified, and returns the removed rights. If rights is
// nil, Disallow removes all of them. If one of the rights was not added before, Disallow returns [NotAllowed] and
// removes nothing.
func (s *Allowances) Disallow(
	ctx context.Context, h Holder, rights agent.Access, by string,
) (removed agent.Access, err error) {
	err = s.store.DB.Write(ctx, func(tx state.Tx) error {
		list, err := s.of(tx, h)
		if err != nil {
			return err
		}
		held := make(agent.Access, len(list))
		for i, a := range list {
			held[i] = a.Right
		}
		if removed = rights; rights == nil {
			removed = held // a modified row may have values that the statement in remove does not match
			if _, err := tx.Exec(`DELETE FROM allowances `+ofHolder, h.Agent, h.ID, h.Server, h.Code); err != nil {
				return err
			}
			if _, err := s.unregister(tx, h.Agent, h.ID, h.Server, h.Code); err != nil {
				return err
			}
		}
		var absent NotAllowed
		for _, r := range removed {
			registered, err := s.remove(tx, h, r)
			if err != nil {
				return err
			}
			if !registered && !slices.ContainsFunc(held, r.Same) {
				absent = append(absent, r)
			}
		}
		switch {
		case len(absent) > 0:
			return absent
		case len(removed) == 0:
			return nil
		}
		return s.record(tx, "disallow", by, s.now(), h,
			fmt.Sprintf("server %s is no longer allowed to %s", h.Server, texts(removed)))
	})
	if err != nil {
		return nil, err
	}
	return removed, nil
}

// Forget removes all allowances of the agents with this name, and returns how many there were.
func (s *Allowances) Forget(ctx context.Context, name, by string) (removed int64, err error) {
	err = s.store.DB.Write(ctx, func(tx state.Tx) error {
		if removed, err = tx.Exec(`DELETE FROM allowances WHERE agent = $1`, name); err != nil {
			return err
		}
		entries, err := s.unregister(tx, name)
		if err != nil || removed == 0 && entries == 0 {
			return err
		}
		return s.record(tx, "disallow", by, s.now(), Holder{Agent: name}, "the servers of the agent have no added rights")
	})
	return removed, err
}

func (s *Allowances) record(tx state.Tx, verb, by string, at time.Time, h Holder, detail string) error {
	var id [16]byte
	rand.Read(id[:]) // never fails
	_, err := s.store.Journal.Append(tx, &journal.Record{
		Time: at, Call: hex.EncodeToString(id[:]), Agent: h.Agent, ID: h.ID, Principal: by, Tool: verb,
		Decision: journal.Allow, Stage: "allowance", Detail: detail,
	})
	return err
}

func texts(rights agent.Access) string {
	var list []string
	for _, r := range rights {
		list = append(list, r.String())
	}
	return strings.Join(list, "; ")
}

// Claims returns the allowances in the store, whether or not the register contains them.
func Claims(tx state.Tx) (rows []authority.Row, err error) {
	list, err := query(tx, &authority.View{}, "")
	for _, a := range list {
		row := a.row()
		row.Gives = fmt.Sprintf("the server %s of the agent %s may %s, allowed by %s on %s",
			a.Server, a.Agent, a.Right, a.By, a.At.UTC().Format(time.DateOnly))
		rows = append(rows, row)
	}
	return rows, err
}
