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
		Short:     "Replace the root key, from which the keys of journal, seals and grants come",
		ValidArgs: []string{"root"},
		Long: "Make a new root key, and with it new keys that sign the journal and grants, and that seal what the store keeps. The\n" +
			"older roots stay behind it, to read what is sealed and to check what was signed; the journal records the hand-over,\n" +
			"signed by both keys. Sessions and pending approvals begin anew. Restart every daemon, worker and client of this store\n" +
			"afterwards: until then they are refused. Where machines share a store, copy keys/root to all of them. A store that is\n" +
			"still under an older root of this home, because another one was rotated, is handed over to the newest: none is made.",
		Example: "  ambit rotate root\n  ambit rotate root --store postgres://…",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "root" {
				return nil
			}
			return usage("write: ambit rotate root. For API keys: ambit key rotate ID", "rotate takes the word root")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return t.rotateRoot(cmd.Context(), storeURL) },
	}
	storeFlag(cmd.Flags(), &storeURL)
	return cmd
}

func (t *terminal) rotateRoot(ctx context.Context, storeURL string) error {
	h := t.home
	if err := wantBegun(t.begun(ctx, storeURL)); err != nil {
		return err
	}
	t.elsewhere(ctx, storeURL)
	b, err := t.openBooks(ctx, storeURL, store.OpenToRotate)
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
		err = no("nothing is lost: run it again when that is fixed", "the root key cannot be rotated: %w", err)
		return errors.Join(err, b.DB.Close())
	}
	now := b.Journal.Key().String()
	if err := closing(b); err != nil {
		return err
	}
	return t.show(map[string]any{"old_key": was, "key": now, "grants": grants, "root": h.Root()}, func() {
		t.printf("%s the journal is now signed with %s\n", t.paint(green, "rotated:"), now)
		t.notef("signed anew: %s; before, the journal was signed with %s", count(grants, "grant"), was)
		if resumed {
			t.notef("this ended a rotation that was begun before: if others may have seen its key since, run it once more")
		}
		t.notef("restart every daemon, worker and client of this store; where machines share it, copy %s to all of them first", h.Root())
	})
}

func newKeyRotate(t *terminal, storeURL *string) *cobra.Command {
	overlap := "24h"
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Make a key in the place of another, which ends after a while",
		Long: "Make a key in the place of another: for the same principal, with the same rights, and for as long as the old one was\n" +
			"made for. It is shown this once. The old one stays good for --overlap, so that nothing stops while the new one is\n" +
			"brought to where it is used; with --overlap 0 it ends at once.",
		Example: "  ambit key rotate 7kq2m4xw9p\n  ambit key rotate 7kq2m4xw9p --overlap 0",
		Args:    exactly(1, "the id of a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if identity.LooksLikeKey(args[0]) {
				// The key itself does not belong into a command line, or in our answer.
				return usage("its id is between its first two _, and in: ambit key list", "rotate takes the id of a key, not the key")
			}
			lap, err := parseOverlap(overlap)
			if err != nil {
				return err
			}
			return t.apiKeys(cmd.Context(), *storeURL, func(keys *identity.APIKeys) error {
				fresh, old, text, err := keys.Rotate(cmd.Context(), args[0], lap)
				switch {
				case errors.Is(err, identity.ErrNoKey):
					return no("see: ambit key list", "there is no key %q that is good and could be rotated", args[0])
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
				t.notef("%s", t.paint(dim, "this is shown only now; its id is "+fresh.ID+", and it opens "+opens(fresh)))
				t.notef("the old key %s ends at %s", old.ID, ends)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&overlap, "overlap", overlap, "how long the old key stays good: a `time` (12h, 7d), or 0")
	return cmd
}

// parseOverlap reads how long two keys are good side by side.
func parseOverlap(s string) (time.Duration, error) {
	const most = 90 * 24 * time.Hour
	d, err := home.Duration(s)
	if err != nil || d > most {
		return 0, usage("write it as 12h or 7d, up to 90d", "--overlap %q is no such time", s)
	}
	return d, nil
}
