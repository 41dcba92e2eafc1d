package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

func newKey(t *terminal) *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{Use: "key"}
	sharedStoreFlag(cmd.PersistentFlags(), &storeURL)
	return group(cmd,
		newKeyNew(t, &storeURL), newKeyList(t, &storeURL), newKeyRotate(t, &storeURL), newKeyRevoke(t, &storeURL),
		newKeyAdopt(t, &storeURL))
}

// apiKeys calls f with the API keys in a store. All changes to the keys are journaled.
func (t *terminal) apiKeys(ctx context.Context, storeURL string, f func(*identity.APIKeys) error) error {
	b, err := t.sharedStore(ctx, storeURL)
	if err != nil {
		return err
	}
	keys := identity.NewAPIKeys(b.Authority)
	keys.Note = func(tx state.Tx, c identity.KeyChange) error {
		r := keyRecord(c)
		r.Call, r.Principal, r.Decision, r.Stage = gateway.NewID(), identity.LocalName(), journal.Allow, "key"
		_, err := b.Journal.Append(tx, r)
		return err
	}
	return errors.Join(f(keys), b.Close())
}

// keyLifetime is how long a new key is valid if the user does not set --expires. With --expires never, the key never
// expires.
const (
	keyLifetime = "90d"
	never       = "never"
)

func newKeyNew(t *terminal, storeURL *string) *cobra.Command {
	var spec identity.KeySpec
	var expires string
	var all bool
	cmd := verb("new", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		var err error
		if expires != never {
			if spec.Expires, err = parseEnd(cmp.Or(expires, keyLifetime), time.Now()); err != nil {
				return err
			}
		}
		if all && (spec.Admin || len(spec.Agents) > 0) {
			return usage("use only one of these flags", "--all cannot be combined with --agents or --admin")
		}
		if spec.Admin && len(spec.Agents) > 0 {
			return usage("leave out --admin or --agents", "--admin gives access to every agent, so do not add --agents")
		}
		if slices.Contains(spec.Agents, "") {
			return usage("to list the names, run: ambit agents", "--agents contains an empty name")
		}
		if !all && !spec.Admin && len(spec.Agents) == 0 {
			return usage("add --agents NAME,… or --all (every agent, including future agents)",
				"a new key needs the agents that it gives access to")
		}
		return t.apiKeys(ctx, *storeURL, func(keys *identity.APIKeys) error {
			k, text, err := keys.New(ctx, spec)
			if err != nil {
				return no("", "%w", err)
			}
			unknown := t.unknownAgents(ctx, spec.Agents)
			more := map[string]any{"unknown_agents": append([]string{}, unknown...)}
			return t.printNewKey(k, text, more, func() {
				for _, name := range unknown {
					t.warnf("there is no agent %s yet; the key gives access once the agent exists", diag.Quote(name))
				}
				if len(unknown) > 0 {
					t.hintf("to list the names of the agents, run: ambit agents")
				}
			})
		})
	})
	cmd.Flags().StringVar(&spec.Name, "name", "", "a `name` by which people recognize the key")
	cmd.Flags().StringSliceVar(&spec.Agents, "agents", nil,
		"the only `agents` that the key gives access to, separated by commas")
	cmd.Flags().BoolVar(&all, "all", false, "give access to every agent, including agents that are added later")
	cmd.Flags().BoolVar(&spec.Admin, "admin", false, "give access to every agent and to the daemon's administration")
	cmd.Flags().StringVar(&expires, "expires", keyLifetime,
		"when the key expires: a `time` from now (30d, 12h), a date (2027-01-31T00:00:00Z), or never")
	cmd.Flags().StringSliceVar(&spec.Groups, "group", nil,
		"the `groups` of the holder in policy rules, separated by commas (default: none)")
	cmd.Flags().StringVar(&spec.Principal, "principal", "",
		"the `principal` for calls made with the key (default: the key itself)")
	return cmd
}

// printNewKey prints a new API key, which is never shown again. With --json, it also prints the entries of the
// parameter extra. Without --json, it calls printNotes after it has printed the key.
func (t *terminal) printNewKey(k *identity.APIKey, text string, extra map[string]any, printNotes func()) error {
	doc := keyDocument(k)
	doc["key"] = text
	maps.Copy(doc, extra)
	return t.show(doc, func() {
		t.printf("%s\n", text)
		t.remarkf("the key is shown only once; its id is %s, and the key gives access to %s%s", k.ID, accessOf(k), untilUTC(k.Expires))
		printNotes()
	})
}

// unknownAgents returns the given names for which no agent exists. Such a name is not an error, because a key can be
// created before its agent.
func (t *terminal) unknownAgents(ctx context.Context, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	list, err := listAgents(ctx, t.home, "")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(list.Agents, func(c daemon.Card) bool { return c.Name == name })
	})
}

// parseEnd parses the value of --expires: a duration such as 30d, or a date. An empty value yields the zero time.
func parseEnd(s string, now time.Time) (time.Time, error) {
	var end time.Time
	if s == "" {
		return end, nil
	}
	if d, err := home.Duration(s); err == nil {
		end = now.Add(d)
	} else if at, err := time.Parse(time.RFC3339, s); err == nil {
		end = at
	}
	if !end.After(now) {
		return end, usage("write a time such as 30d, 12h or 2027-01-31T00:00:00Z",
			"--expires %q is not a time in the future", s)
	}
	return end, nil
}

func newKeyList(t *terminal, storeURL *string) *cobra.Command {
	return verb("list", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		var list []*identity.APIKey
		if t.hasSharedStore(*storeURL) {
			err := t.apiKeys(ctx, *storeURL, func(keys *identity.APIKeys) (err error) {
				list, err = keys.List(ctx)
				return err
			})
			if err != nil {
				return err
			}
		}
		return t.show(map[string]any{"keys": each(list, keyDocument)}, func() {
			if len(list) == 0 {
				t.notef("there are no keys; to create one, run: ambit key new --agents NAME")
			}
			t.table("", each(list, t.keyRow))
		})
	})
}

func (t *terminal) keyRow(k *identity.APIKey) []string {
	state, colour, until := keyState(k), green, "no end"
	if state != "good" {
		colour = dim
	}
	if !k.Expires.IsZero() {
		until = "until " + moment(k.Expires)
	}
	return []string{t.paint(colour, state), k.ID, diag.Printable(cmp.Or(k.Name, "-")), until, accessOf(k)}
}

func newKeyRevoke(t *terminal, storeURL *string) *cobra.Command {
	return verb("revoke ID|NAME", exactly(1, "the id or name of a key"), func(ctx context.Context, args []string) error {
		if err := refuseKey("revoke", args[0]); err != nil {
			return err
		}
		return t.apiKeys(ctx, *storeURL, func(keys *identity.APIKeys) error {
			id, err := keyNamed(ctx, keys, args[0])
			if err != nil {
				return err
			}
			ok, err := keys.Revoke(ctx, id)
			if err != nil {
				return err
			}
			if !ok {
				return no("to list the keys, run: ambit key list", "there is no valid key %q to revoke", id)
			}
			return t.say(map[string]any{"id": id, "revoked": true}, "%s %s\n", t.paint(green, "revoked:"), id)
		})
	})
}

// refuseKey returns an error if the argument is a complete API key instead of an id. The error message does not repeat
// the key, because the key is a secret.
func refuseKey(verb, id string) error {
	if identity.LooksLikeKey(id) {
		return usage("the id is between the key's first two underscores; to list the ids, run: ambit key list",
			"ambit key %s takes the id of a key, not the key itself", verb)
	}
	return nil
}

func keyDocument(k *identity.APIKey) map[string]any {
	return map[string]any{
		"id": k.ID, "name": k.Name, "principal": cmp.Or(k.Principal, "key:"+k.ID),
		"agents": append([]string{}, k.Agents...), "groups": append([]string{}, k.Groups...), "admin": k.Admin, "state": keyState(k),
		"made_at": k.Made.UTC().Format(time.RFC3339), "expires_at": expiry(k.Expires),
	}
}

func keyState(k *identity.APIKey) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked"
	case !k.Expires.IsZero() && !time.Now().Before(k.Expires):
		return "expired"
	case k.Changed:
		return "changed"
	}
	return "good"
}

// accessOf describes the access that an API key gives.
func accessOf(k *identity.APIKey) string {
	what := "every agent"
	switch {
	case k.Admin:
		what = "every agent, and administration: approvals, the console and reload"
	case len(k.Agents) > 0:
		what = diag.Printable(strings.Join(k.Agents, ", "))
	}
	if len(k.Groups) > 0 {
		what += ", in the groups " + diag.Printable(strings.Join(k.Groups, ", "))
	}
	if k.Principal != "" {
		what += " as " + diag.Printable(k.Principal)
	}
	return what
}

// keyRecord returns the journal record for a change to an API key.
func keyRecord(c identity.KeyChange) *journal.Record {
	if c.Revoked != "" {
		return &journal.Record{Tool: "key revoke", Detail: "key " + c.Revoked + " was revoked"}
	}
	detail := "key " + c.Made.ID + " was created and gives access to " + accessOf(c.Made) + untilUTC(c.Made.Expires)
	if c.Old == nil {
		return &journal.Record{Tool: "key new", Detail: detail}
	}
	detail += ", to replace key " + c.Old.ID + ", which is valid" + untilUTC(c.Old.Expires)
	return &journal.Record{Tool: "key rotate", Detail: detail}
}

// untilUTC formats an expiry for a sentence or a journal record. If the key never expires, end is the zero time and
// untilUTC returns "".
func untilUTC(end time.Time) string {
	if end.IsZero() {
		return ""
	}
	return " until " + end.UTC().Format(time.RFC3339)
}

func newRotate(t *terminal) *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{
		Use:       "rotate root",
		ValidArgs: []string{"root"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "root" {
				return nil
			}
			return usage("run: ambit rotate root; for an API key, run: ambit key rotate ID",
				"ambit rotate needs the argument \"root\"")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return t.rotateRoot(cmd.Context(), storeURL) },
	}
	storeFlag(cmd.Flags(), &storeURL)
	return cmd
}

func (t *terminal) rotateRoot(ctx context.Context, storeURL string) error {
	h := t.home
	if !t.hasStore(storeURL) {
		return t.noStore()
	}
	t.warnElsewhere(storeURL)
	b, err := t.openStoreWith(ctx, storeURL, store.OpenToRotate)
	if err != nil {
		return err
	}
	resumed := identity.Rotating(h.Root())
	was, by, grants, allowances := b.Journal.Key().String(), identity.LocalName(), 0, 0
	err = b.Rotate(ctx, h, by, func(tx state.Tx, next *store.Store) error {
		given, err := grant.Claims(tx)
		if err != nil {
			return err
		}
		allowed, err := allowance.Claims(tx)
		if err != nil {
			return err
		}
		grants, allowances = len(given), len(allowed)
		_, err = next.Journal.Append(tx, &journal.Record{
			Call: gateway.NewID(), Principal: by, Tool: "rotate root", Decision: journal.Allow,
			Detail: fmt.Sprintf("the journal's key was %s and is now %s", was, next.Journal.Key()),
		})
		return err
	})
	if err != nil {
		b.Journal = nil
		err = no("nothing is lost; fix the problem, then try again", "the root key cannot be rotated: %w", err)
		return errors.Join(err, b.DB.Close())
	}
	now := b.Journal.Key().String()
	if err := closing(b); err != nil {
		return err
	}
	doc := map[string]any{"old_key": was, "key": now, "grants": grants, "allowances": allowances, "root": h.Root()}
	return t.show(doc, func() {
		t.printf("%s the journal is now signed with %s\n", t.paint(green, "rotated:"), now)
		t.notef("%s and %s stay valid; the old key of the journal is %s",
			count(grants, "grant"), count(allowances, "allowance"), was)
		if resumed {
			t.notef("this completed an interrupted rotation; if anyone could have seen the new key, run the command again")
		}
		t.notef("restart every daemon, worker and client of this store; "+
			"if several machines share the store, first copy %s to all of them", h.Root())
	})
}

func newKeyRotate(t *terminal, storeURL *string) *cobra.Command {
	overlap := "24h"
	cmd := verb("rotate ID|NAME", exactly(1, "the id or name of a key"), func(ctx context.Context, args []string) error {
		if err := refuseKey("rotate", args[0]); err != nil {
			return err
		}
		lap, err := home.Duration(overlap)
		if err != nil || lap > 90*24*time.Hour {
			return usage("write a time such as 12h or 7d, up to 90d", "--overlap %q is not a valid time", overlap)
		}
		return t.apiKeys(ctx, *storeURL, func(keys *identity.APIKeys) error {
			id, err := keyNamed(ctx, keys, args[0])
			if err != nil {
				return err
			}
			fresh, old, text, err := keys.Rotate(ctx, id, lap)
			switch {
			case errors.Is(err, identity.ErrNoKey):
				return no("to list the keys, run: ambit key list", "there is no valid key %q to rotate", args[0])
			case err != nil:
				return err
			}
			ends := old.Expires.UTC().Format(time.RFC3339)
			more := map[string]any{"replaces": map[string]any{"id": old.ID, "expires_at": ends}}
			return t.printNewKey(fresh, text, more, func() { t.notef("the old key %s expires at %s", old.ID, ends) })
		})
	})
	cmd.Flags().StringVar(&overlap, "overlap", overlap, "how long the old key stays valid: a `time` (12h, 7d), or 0")
	return cmd
}
