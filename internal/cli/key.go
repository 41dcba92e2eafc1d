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
		Long: "Make, list, rotate and revoke the API keys that a daemon takes. A key is shown once, when it is made; only its hash is\n" +
			"kept. A revoked key opens nothing from that moment on, also in a daemon that runs.",
	}
	sharedStoreFlag(cmd.PersistentFlags(), &store)
	return group(cmd, newKeyNew(t, &store), newKeyList(t, &store), newKeyRotate(t, &store), newKeyRevoke(t, &store))
}

// apiKeys opens the keys of a store for the time of f. What becomes of them meanwhile
// is journaled.
func (t *terminal) apiKeys(ctx context.Context, store string, f func(*identity.APIKeys) error) error {
	b, err := t.sharedBooks(ctx, store)
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
		Short:   "Make a key, and show it this once",
		Example: "  ambit key new --name ci --agents default --expires 30d\n  ambit key new --admin --json",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if expires != "" {
				end, err := parseEnd(expires, time.Now())
				if err != nil {
					return err
				}
				spec.Expires = end
			}
			if spec.Admin && len(spec.Agents) > 0 {
				return usage("leave one of the two out", "--admin opens every agent, so --agents cannot limit it")
			}
			if slices.Contains(spec.Agents, "") {
				return usage("name agents as ambit agents lists them", "--agents holds an empty name")
			}
			return t.apiKeys(cmd.Context(), *store, func(keys *identity.APIKeys) error {
				k, text, err := keys.New(cmd.Context(), spec)
				if err != nil {
					return no("", "%w", err)
				}
				strange := strangers(cmd.Context(), spec.Agents)
				if t.json {
					doc := keyDocument(k, time.Now())
					doc["key"], doc["unknown_agents"] = text, append([]string{}, strange...)
					return t.document(doc)
				}
				t.printf("%s\n", text)
				for _, name := range strange {
					t.warnf("no agent here is called %s: the key opens it once there is one", diag.Quote(name))
				}
				if len(strange) > 0 {
					t.hintf("agents are named as ambit agents lists them")
				}
				t.notef("%s", t.paint(dim, "this is shown only now; its id is "+k.ID+", and it opens "+opens(k)))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "a `word` for people to know it by")
	cmd.Flags().StringSliceVar(&spec.Agents, "agents", nil, "the only `agents` it opens, separated by commas (default all)")
	cmd.Flags().BoolVar(&spec.Admin, "admin", false, "let it run the daemon too")
	cmd.Flags().StringVar(&expires, "expires", "", "when it ends: a `time` from now (30d, 12h) or a date (2027-01-31T00:00:00Z)")
	cmd.Flags().StringVar(&spec.Principal, "principal", "", "`who` its holder acts as (default the key itself)")
	return cmd
}

// strangers are the names that no agent has: of the daemon's, or of those that are
// installed. A key may be made before its agent is there, so they are no error.
func strangers(ctx context.Context, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	h, err := home.Find()
	if err != nil {
		return nil
	}
	cards, _, _, err := listAgents(ctx, h, "")
	if err != nil {
		return nil // nobody can say
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(cards, func(c daemon.Card) bool { return c.Name == name })
	})
}

// parseEnd reads when something ends: 30d, 12h or a date.
func parseEnd(s string, now time.Time) (time.Time, error) {
	var end time.Time
	if d, err := home.Duration(s); err == nil {
		end = now.Add(d)
	} else if at, err := time.Parse(time.RFC3339, s); err == nil {
		end = at
	}
	if !end.After(now) {
		return end, usage("write it as 30d, 12h or 2027-01-31T00:00:00Z", "--expires %q is no time that is still to come", s)
	}
	return end, nil
}

func newKeyList(t *terminal, store *string) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys, also those that have ended",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []*identity.APIKey
			some, err := t.sharedBegun(cmd.Context(), *store)
			if err != nil {
				return err
			}
			if some {
				err := t.apiKeys(cmd.Context(), *store, func(keys *identity.APIKeys) (err error) {
					if list, err = keys.List(cmd.Context()); err != nil {
						return err
					}
					return nil
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
		Short:   "End a key at once",
		Example: "  ambit key revoke 7kq2m4xw9p",
		Args:    exactly(1, "the id of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			if identity.LooksLikeKey(id) {
				// The key itself does not belong into a command line, or in our answer.
				return usage("its id is between its first two _, and in: ambit key list", "revoke takes the id of a key, not the key")
			}
			return t.apiKeys(cmd.Context(), *store, func(keys *identity.APIKeys) error {
				ok, err := keys.Revoke(cmd.Context(), id)
				if err != nil {
					return err
				}
				if !ok {
					return no("see: ambit key list", "there is no key %q that could be revoked", id)
				}
				return t.say(map[string]any{"id": id, "revoked": true}, "%s %s\n", t.paint(green, "revoked:"), id)
			})
		},
	}
}

func keyDocument(k *identity.APIKey, now time.Time) map[string]any {
	doc := map[string]any{
		"id": k.ID, "name": k.Name, "principal": cmp.Or(k.Principal, "key:"+k.ID), "agents": append([]string{}, k.Agents...), "admin": k.Admin,
		"made_at": k.Made.UTC().Format(time.RFC3339), "expires_at": nil, "state": keyState(k, now),
	}
	if !k.Expires.IsZero() {
		doc["expires_at"] = k.Expires.UTC().Format(time.RFC3339)
	}
	return doc
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

// opens says what a key is good for.
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

// keyRecord says what became of a key, which is told by its id.
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

// keyEnd says until when a key is good, if not for ever.
func keyEnd(k *identity.APIKey) string {
	if k.Expires.IsZero() {
		return ""
	}
	return " until " + k.Expires.UTC().Format(time.RFC3339)
}
