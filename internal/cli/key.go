package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

func newKey(t *terminal) *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use:     "key",
		GroupID: groupSecrets,
		Short:   "Make, list, rotate and revoke the API keys of the daemon",
		Long: "Make, list, rotate and revoke the API keys that a daemon accepts. A key is shown once, when it is made; only its\n" +
			"hash is stored. A revoked key stops working immediately, also in a running daemon.",
	}
	sharedStoreFlag(cmd.PersistentFlags(), &store)
	return group(cmd, newKeyNew(t, &store), newKeyList(t, &store), newKeyRotate(t, &store), newKeyRevoke(t, &store))
}

// apiKeys runs f with the keys of a store. Every change that f makes is journaled.
func (t *terminal) apiKeys(ctx context.Context, store string, f func(*identity.APIKeys) error) error {
	b, err := t.sharedStore(ctx, store)
	if err != nil {
		return err
	}
	keys := identity.NewAPIKeys(b.DB)
	keys.Note = func(tx state.Tx, c identity.KeyChange) error {
		r := keyRecord(c)
		r.Call, r.Principal, r.Decision, r.Stage = gateway.NewID(), identity.LocalName(), journal.Allow, "key"
		_, err := b.Journal.Append(tx, r)
		return err
	}
	err = f(keys)
	if closeErr := b.Close(); err == nil && closeErr != nil {
		err = &failure{code: exitMissing, err: closeErr}
	}
	return err
}

func newKeyNew(t *terminal, store *string) *cobra.Command {
	var spec identity.KeySpec
	var expires string
	cmd := &cobra.Command{
		Use:     "new",
		Short:   "Make a key and show it once",
		Example: "  ambit key new --name ci --agents default --expires 30d\n  ambit key new --admin --json",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if spec.Expires, err = parseEnd(expires, time.Now()); err != nil {
				return err
			}
			if spec.Admin && len(spec.Agents) > 0 {
				return usage("leave one of the two out", "--admin opens every agent, so --agents cannot limit it")
			}
			if slices.Contains(spec.Agents, "") {
				return usage("use the names that ambit agents lists", "--agents contains an empty name")
			}
			return t.apiKeys(cmd.Context(), *store, func(keys *identity.APIKeys) error {
				k, text, err := keys.New(cmd.Context(), spec)
				if err != nil {
					return no("", "%w", err)
				}
				unknown := t.unknownAgents(cmd.Context(), spec.Agents)
				if t.json {
					doc := keyDocument(k, time.Now())
					doc["key"], doc["unknown_agents"] = text, append([]string{}, unknown...)
					return t.document(doc)
				}
				t.printf("%s\n", text)
				for _, name := range unknown {
					t.warnf("there is no agent %s here yet: the key opens it once it exists", diag.Quote(name))
				}
				if len(unknown) > 0 {
					t.hintf("use the names that ambit agents lists")
				}
				t.keyShown(k)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "a `name` for people")
	cmd.Flags().StringSliceVar(&spec.Agents, "agents", nil, "the only `agents` it opens, separated by commas (default all)")
	cmd.Flags().BoolVar(&spec.Admin, "admin", false, "let it run the daemon too")
	cmd.Flags().StringVar(&expires, "expires", "", "when it ends: a `time` from now (30d, 12h) or a date (2027-01-31T00:00:00Z)")
	cmd.Flags().StringVar(&spec.Principal, "principal", "", "the `principal` that its holder acts as (default the key itself)")
	return cmd
}

// keyShown prints what a person must know about a key that was just printed.
func (t *terminal) keyShown(k *identity.APIKey) {
	t.remarkf("this is shown only now; its id is %s, and it opens %s", k.ID, opens(k))
}

// unknownAgents returns the names that neither the daemon nor the home has an agent for. They
// are no error: a key may be made before its agent.
func (t *terminal) unknownAgents(ctx context.Context, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	cards, _, _, err := listAgents(ctx, t.home, "")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(cards, func(c daemon.Card) bool { return c.Name == name })
	})
}

// parseEnd parses the value of --expires, 30d, 12h or a date; zero if s is empty.
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
		return end, usage("write it as 30d, 12h or 2027-01-31T00:00:00Z", "--expires %q is not a time in the future", s)
	}
	return end, nil
}

func newKeyList(t *terminal, store *string) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys, including expired and revoked ones",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []*identity.APIKey
			if t.hasSharedStore(cmd.Context(), *store) {
				err := t.apiKeys(cmd.Context(), *store, func(keys *identity.APIKeys) (err error) {
					list, err = keys.List(cmd.Context())
					return err
				})
				if err != nil {
					return err
				}
			}
			return t.keyList(list, time.Now())
		},
	}
}

func (t *terminal) keyList(list []*identity.APIKey, now time.Time) error {
	if t.json {
		docs := make([]any, len(list))
		for i, k := range list {
			docs[i] = keyDocument(k, now)
		}
		return t.document(map[string]any{"keys": docs})
	}
	if len(list) == 0 {
		t.notef("there are no keys; make one with: ambit key new")
		return nil
	}
	rows := [][]string{}
	for _, k := range list {
		state := keyState(k, now)
		colour := green
		if state != "good" {
			colour = dim
		}
		until := "no end"
		if !k.Expires.IsZero() {
			until = "until " + moment(k.Expires)
		}
		rows = append(rows, []string{t.paint(colour, state), k.ID, diag.Printable(cmp.Or(k.Name, "-")), until, opens(k)})
	}
	t.table("", rows)
	return nil
}

func newKeyRevoke(t *terminal, store *string) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke a key immediately",
		Example: "  ambit key revoke 7kq2m4xw9p",
		Args:    exactly(1, "the id of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			if err := refuseKey("revoke", id); err != nil {
				return err
			}
			return t.apiKeys(cmd.Context(), *store, func(keys *identity.APIKeys) error {
				ok, err := keys.Revoke(cmd.Context(), id)
				if err != nil {
					return err
				}
				if !ok {
					return no("see: ambit key list", "there is no valid key %q to revoke", id)
				}
				return t.say(map[string]any{"id": id, "revoked": true}, "%s %s\n", t.paint(green, "revoked:"), id)
			})
		},
	}
}

// refuseKey refuses a key in the place of its id. A key does not belong on a command line,
// so the message does not repeat it.
func refuseKey(verb, id string) error {
	if identity.LooksLikeKey(id) {
		return usage("its id is between its first two _, and in: ambit key list", "%s takes the id of a key, not the key", verb)
	}
	return nil
}

func keyDocument(k *identity.APIKey, now time.Time) map[string]any {
	return map[string]any{
		"id": k.ID, "name": k.Name, "principal": cmp.Or(k.Principal, "key:"+k.ID), "agents": append([]string{}, k.Agents...), "admin": k.Admin,
		"made_at": k.Made.UTC().Format(time.RFC3339), "expires_at": expiry(k.Expires), "state": keyState(k, now),
	}
}

func keyState(k *identity.APIKey, now time.Time) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked"
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "expired"
	}
	return "good"
}

// opens describes what a key gives access to.
func opens(k *identity.APIKey) string {
	what := "every agent"
	switch {
	case k.Admin:
		what = "everything"
	case len(k.Agents) > 0:
		what = diag.Printable(strings.Join(k.Agents, ", "))
	}
	if k.Principal != "" {
		what += " as " + diag.Printable(k.Principal)
	}
	return what
}

// keyRecord returns the journal record of a change of a key.
func keyRecord(c identity.KeyChange) *journal.Record {
	if c.Revoked != "" {
		return &journal.Record{Tool: "key revoke", Detail: "key " + c.Revoked + " was revoked"}
	}
	r := &journal.Record{Tool: "key new", Detail: "key " + c.Made.ID + " was made and opens " + opens(c.Made) + keyEnd(c.Made)}
	if c.Old != nil {
		r.Tool = "key rotate"
		r.Detail += ", in the place of key " + c.Old.ID + ", which is good" + keyEnd(c.Old)
	}
	return r
}

// keyEnd describes when a key expires; empty if it does not.
func keyEnd(k *identity.APIKey) string {
	if k.Expires.IsZero() {
		return ""
	}
	return " until " + k.Expires.UTC().Format(time.RFC3339)
}
