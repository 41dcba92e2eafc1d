package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/authority"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/supply/bundle/review"
)

// claims returns all rows of the store that would give authority if they were in the register.
func claims(tx state.Tx) (all []authority.Row, err error) {
	for _, of := range []func(state.Tx) ([]authority.Row, error){
		identity.Claims, approval.Claims, grant.Claims, allowance.Claims, review.Claims, host.LockClaims,
	} {
		rows, err := of(tx)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// authorityProblem describes a difference: a row that claims authority is not in the register, or a row of the register
// is missing from the store.
type authorityProblem struct {
	Kind    authority.Kind `json:"kind"`
	ID      string         `json:"id"`
	Problem string         `json:"problem"`
}

// checkAuthority compares the rows that have authority with the register.
func checkAuthority(ctx context.Context, b *store.Store) (problems []authorityProblem, err error) {
	err = b.Authority.Read(ctx, func(tx state.Tx, v *authority.View) error {
		problems = nil
		rows, err := claims(tx)
		for _, row := range rows {
			if !v.Has(row) {
				problems = append(problems, authorityProblem{row.Kind, row.ID, "something other than ambit added, changed or restored it"})
			}
		}
		for _, row := range v.Missing(rows, time.Now()) {
			problems = append(problems, authorityProblem{row.Kind, row.ID, "something other than ambit deleted or changed it"})
		}
		return err
	})
	_, damaged := errors.AsType[*authority.DamagedError](err)
	if damaged || errors.Is(err, authority.ErrChanged) || errors.Is(err, authority.ErrOlder) {
		return []authorityProblem{{Kind: "register", Problem: err.Error()}}, nil
	}
	return problems, err
}

// printAuthority prints the problems that checkAuthority found.
func (t *terminal) printAuthority(problems []authorityProblem) {
	if len(problems) == 0 {
		return
	}
	t.printf("%s\n", t.paint(boldRed, "the store has been changed by something other than ambit:"))
	for _, p := range problems {
		t.printf("  %s: %s\n", strings.TrimSpace(string(p.Kind)+" "+diag.Printable(p.ID)), p.Problem)
	}
	t.hintf("these rows have no effect; find out who can write to the store, and change the database password")
}

func newKeyAdopt(t *terminal, storeURL *string) *cobra.Command {
	var yes bool
	cmd := verb("adopt", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		return t.withExistingStore(ctx, *storeURL, func(b *store.Store) error { return t.adopt(ctx, b, yes) })
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "trust the rows without asking")
	return cmd
}

// adoptedRow is a row that "ambit key adopt" added to the register.
type adoptedRow struct {
	Kind  authority.Kind `json:"kind"`
	ID    string         `json:"id"`
	Gives string         `json:"gives"`
}

func (t *terminal) adopt(ctx context.Context, b *store.Store, yes bool) error {
	var kept []authority.Row
	var broken error
	rollBack := errors.New("only a preview") // the first transaction only finds the rows that Adopt would keep
	err := b.DB.Write(ctx, func(tx state.Tx) error {
		rows, err := claims(tx)
		if err != nil {
			return err
		}
		v, err := b.Authority.View(tx)
		if err == nil && (v.Version > 0 || len(rows) == 0) {
			return nil
		}
		broken = err
		if kept, err = b.Authority.Adopt(tx, rows); err != nil {
			return err
		}
		return rollBack
	})
	if err == nil {
		return t.say(map[string]any{"adopted": []string{}, "rows": []adoptedRow{}}, "there is nothing to adopt: the register of authority is intact\n")
	}
	if !errors.Is(err, rollBack) {
		return no("", "the store cannot be read: %w", err)
	}
	if !yes {
		t.notef("ambit will trust these rows of the store:")
		for _, row := range kept {
			t.notef("  %s %s: %s", row.Kind, diag.Printable(row.ID), diag.Printable(row.Gives))
		}
		if errors.Is(broken, authority.ErrChanged) {
			t.warnf("the register of authority was changed, so ambit cannot tell whether it wrote these rows; already " +
				"used sign-in links and closed console sessions may work again until they expire")
		}
		agreed, err := t.agreed(ctx, "trust these rows?")
		if err != nil {
			return err
		}
		if !agreed {
			return no("to list the keys, run: ambit key list; to trust the rows, run this command again with --yes",
				"nothing was adopted")
		}
	}
	ids, rows := []string{}, []adoptedRow{}
	for _, row := range kept {
		ids = append(ids, string(row.Kind)+" "+row.ID)
		rows = append(rows, adoptedRow{row.Kind, row.ID, row.Gives})
	}
	err = b.DB.Write(ctx, func(tx state.Tx) error {
		if _, err := b.Authority.Adopt(tx, kept); err != nil {
			return err
		}
		_, err := b.Journal.Append(tx, &journal.Record{
			Call: gateway.NewID(), Principal: identity.LocalName(), Tool: "key adopt", Decision: journal.Allow, Stage: "key",
			Detail: "adopted " + count(len(ids), "row") + " of the store: " + strings.Join(ids, ", "),
		})
		return err
	})
	if err != nil {
		return no("", "the rows cannot be adopted: %w", err)
	}
	return t.say(map[string]any{"adopted": ids, "rows": rows}, "%s %s\n", t.paint(green, "adopted:"), count(len(ids), "row"))
}
