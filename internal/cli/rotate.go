package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

func newRotate(t *terminal) *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{
		Use:       "rotate root",
		GroupID:   groupSecrets,
		Short:     "Replace the root key, from which the keys of the journal, seals and grants are derived",
		ValidArgs: []string{"root"},
		Long: "Make a new root key, and with it new keys that sign the journal and grants and that seal data in the store. Older\n" +
			"roots are kept to unseal old data and to check old signatures; the journal records the hand-over, signed by both\n" +
			"keys. Sessions and pending approvals end. Afterwards, restart every daemon, worker and client of this store: they are\n" +
			"refused until then. If machines share a store, copy keys/root to all of them. A store that still uses an older root\n" +
			"of this home, because another store was rotated, is handed over to the newest root, and no new root is made.",
		Example: "  ambit rotate root\n  ambit rotate root --store postgres://…",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "root" {
				return nil
			}
			return usage("write: ambit rotate root. For API keys: ambit key rotate ID", "rotate needs the argument root")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return t.rotateRoot(cmd.Context(), storeURL) },
	}
	storeFlag(cmd.Flags(), &storeURL)
	return cmd
}

func (t *terminal) rotateRoot(ctx context.Context, storeURL string) error {
	h := t.home
	if !t.hasStore(ctx, storeURL) {
		return t.noStore()
	}
	t.warnElsewhere(ctx, storeURL)
	b, err := t.openStoreWith(ctx, storeURL, store.OpenToRotate)
	if err != nil {
		return err
	}
	resumed := identity.Rotating(h.Root())
	was, by, grants := b.Journal.Key().String(), identity.LocalName(), 0
	err = b.Rotate(ctx, h, by, func(tx state.Tx, next *store.Store) (err error) {
		if grants, err = grant.Resign(tx, b, next); err != nil {
			return err
		}
		_, err = next.Journal.Append(tx, &journal.Record{
			Call: gateway.NewID(), Principal: by, Tool: "rotate root", Decision: journal.Allow,
			Detail: fmt.Sprintf("the journal's key was %s and is now %s", was, next.Journal.Key()),
		})
		return err
	})
	if err != nil {
		b.Journal = nil
		err = no("nothing is lost: fix the problem and run it again", "the root key cannot be rotated: %w", err)
		return errors.Join(err, b.DB.Close())
	}
	now := b.Journal.Key().String()
	if err := closing(b); err != nil {
		return err
	}
	return t.show(map[string]any{"old_key": was, "key": now, "grants": grants, "root": h.Root()}, func() {
		t.printf("%s the journal is now signed with %s\n", t.paint(green, "rotated:"), now)
		t.notef("signed again: %s; the old key of the journal is %s", count(grants, "grant"), was)
		if resumed {
			t.notef("this finished an earlier rotation: if others may have seen its key since, run it once more")
		}
		t.notef("restart every daemon, worker and client of this store; if machines share it, first copy %s to all of them", h.Root())
	})
}

func newKeyRotate(t *terminal, storeURL *string) *cobra.Command {
	overlap := "24h"
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace a key; the old one expires after --overlap",
		Long: "Replace a key with a new one for the same principal, with the same rights and the same lifetime. The new key is\n" +
			"shown once. The old key stays valid for --overlap, so that clients keep working while you distribute the new one;\n" +
			"with --overlap 0 it ends immediately.",
		Example: "  ambit key rotate 7kq2m4xw9p\n  ambit key rotate 7kq2m4xw9p --overlap 0",
		Args:    exactly(1, "the id of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseKey("rotate", args[0]); err != nil {
				return err
			}
			lap, err := parseOverlap(overlap)
			if err != nil {
				return err
			}
			return t.apiKeys(cmd.Context(), *storeURL, func(keys *identity.APIKeys) error {
				fresh, old, text, err := keys.Rotate(cmd.Context(), args[0], lap)
				switch {
				case errors.Is(err, identity.ErrNoKey):
					return no("see: ambit key list", "there is no valid key %q to rotate", args[0])
				case err != nil:
					return err
				}
				ends := old.Expires.UTC().Format(time.RFC3339)
				if t.json {
					doc := keyDocument(fresh, time.Now())
					doc["key"] = text
					doc["replaces"] = map[string]any{"id": old.ID, "expires_at": ends}
					return t.document(doc)
				}
				t.printf("%s\n", text)
				t.keyShown(fresh)
				t.notef("the old key %s ends at %s", old.ID, ends)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&overlap, "overlap", overlap, "how long the old key stays valid: a `time` (12h, 7d), or 0")
	return cmd
}

// parseOverlap parses how long the old and the new key are both valid.
func parseOverlap(s string) (time.Duration, error) {
	const most = 90 * 24 * time.Hour
	d, err := home.Duration(s)
	if err != nil || d > most {
		return 0, usage("write it as 12h or 7d, up to 90d", "--overlap %q is not a valid time", s)
	}
	return d, nil
}
