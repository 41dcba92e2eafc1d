package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

func newJournalErase(t *terminal, store *string) *cobra.Command {
	var before string
	cmd := &cobra.Command{
		Use:   "erase --before TIME",
		Short: "Erase the content of old records; their hashes stay",
		Long: "Erase what the records from before a time say. Their hashes stay, so that everything else can still be proven, and\n" +
			"the journal keeps a record of who erased how much. This cannot be undone: export the journal first. A daemon does it\n" +
			"by itself with a table in config.toml: [retention] with journal = \"90d\".",
		Example: "  ambit journal erase --before 90d\n  ambit journal erase --before 2026-01-01T00:00:00Z",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if before == "" {
				return usage("see: ambit journal erase --help", "say with --before TIME what is old")
			}
			at, err := parsePast(before, time.Now())
			if err != nil {
				return err
			}
			return t.withExistingJournal(cmd.Context(), *store, func(j *journal.Journal) error {
				n, err := j.Erase(cmd.Context(), at, identity.LocalName())
				if err != nil {
					return no("what was erased so far is journaled; run it again", "the journal cannot be erased: %w", err)
				}
				return t.show(map[string]any{"erased": n, "before": at.UTC()}, func() {
					t.notef("erased the content of %s", count(int(n), "record"))
				})
			})
		},
	}
	cmd.Flags().StringVar(&before, "before", "", "a `time`: an age (90d, 12h) or a date (2026-01-31T00:00:00Z)")
	return cmd
}

// parsePast parses an age, or a date in the past.
func parsePast(s string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil && at.Before(now) {
		return at, nil
	}
	if end, err := parseEnd(s, now); err == nil && !isDate(s) {
		return now.Add(now.Sub(end)), nil
	}
	return time.Time{}, usage("write it as 90d, 12h or 2026-01-31T00:00:00Z", "--before %q is no time that is over", s)
}

func isDate(s string) bool {
	_, err := time.Parse(time.RFC3339, s)
	return err == nil
}

// readRetention returns how long [retention] of config.toml keeps the content of the journal;
// empty if it is not set.
func readRetention(h home.Home) (age string, err error) {
	var keep struct {
		Journal string `toml:"journal"`
	}
	if _, err := home.ReadTable(h.Config(), "retention", &keep); err != nil || keep.Journal == "" {
		return "", err
	}
	if _, err := parsePast(keep.Journal, time.Now()); err != nil || isDate(keep.Journal) {
		return "", fmt.Errorf(`%s: [retention]: journal is no age, such as "90d"`, h.Config())
	}
	return keep.Journal, nil
}

// retentionCheck is how often a daemon looks for what is too old.
const retentionCheck = time.Hour

// retain erases old records regularly until ctx ends.
func (t *terminal) retain(ctx context.Context, h home.Home, j *journal.Journal) error {
	age, err := readRetention(h)
	if err != nil {
		return no("fix "+diag.ShellWord(h.Config()), "%w", err)
	}
	if age == "" {
		return nil
	}
	go func() {
		tick := time.NewTicker(retentionCheck)
		defer tick.Stop()
		for {
			if at, err := parsePast(age, time.Now()); err == nil {
				n, err := j.Erase(ctx, at, "retention")
				if n > 0 {
					t.logf("erased the content of %s older than %s", count(int(n), "record"), age)
				}
				if err != nil && ctx.Err() == nil {
					t.logf("not all of the old journal records are gone, and it is tried again in an hour: %v", err)
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// newSettle is a verb under journal.
func newSettle(t *terminal, store *string) *cobra.Command {
	var done, notDone bool
	cmd := &cobra.Command{
		Use:   "settle ID",
		Short: "Say what became of a call whose outcome is unknown",
		Long: "Say what became of a call that was sent and whose answer never came. Find out on the other side first:\n" +
			"after --not-done a call of the same idempotency key is made again. Your word is journaled with your name.",
		Example: "  ambit journal show --unknown\n  ambit journal settle 4f2a… --done",
		Args:    exactly(1, "the id of a call"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if done == notDone {
				return usage("say one of --done and --not-done", "settle needs to know whether the call was carried out")
			}
			if err := t.requireSharedStore(cmd.Context(), *store); err != nil {
				return err
			}
			b, err := t.sharedStore(cmd.Context(), *store)
			if err != nil {
				return err
			}
			defer b.Close()
			err = gateway.Settle(cmd.Context(), b, args[0], done, identity.LocalName())
			switch {
			case errors.Is(err, gateway.ErrNotUnknown):
				return no("see which there are: ambit journal show --unknown", "%w", err)
			case err != nil:
				return no("", "the call cannot be settled: %w", err)
			}
			return t.show(map[string]any{"call": args[0], "done": done}, func() {
				said := "was not carried out"
				if done {
					said = "was carried out"
				}
				t.printf("settled: call %s %s\n", diag.Printable(args[0]), said)
			})
		},
	}
	cmd.Flags().BoolVar(&done, "done", false, "it was carried out")
	cmd.Flags().BoolVar(&notDone, "not-done", false, "it was surely not carried out")
	return cmd
}
