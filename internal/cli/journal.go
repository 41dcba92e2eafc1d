package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

func newJournal(t *terminal) *cobra.Command {
	var store string
	var chosen recordFlags
	cmd := &cobra.Command{
		Use:     "journal",
		GroupID: groupRecords,
		Short:   "Read and prove the journal of every decision and outcome",
		Long: "Read and prove the journal, the tamper-evident record of every decision and outcome of every call. Keep a\n" +
			"checkpoint elsewhere now and then: it binds everything before it. A process that has both the store and its\n" +
			"key can rewrite only records that no checkpoint elsewhere binds.",
		Example: "  ambit journal show --agent default --decision deny\n  ambit journal checkpoint -o /mnt/elsewhere/checkpoint\n" +
			"  ambit journal verify --checkpoint /mnt/elsewhere/checkpoint",
		Args: exactly(0, "one of its verbs"),
		RunE: func(cmd *cobra.Command, _ []string) error { return t.journalShow(cmd.Context(), store, &chosen) },
	}
	sharedStoreFlag(cmd.PersistentFlags(), &store)
	chosen.flags(cmd)
	cmd.AddCommand(
		newJournalShow(t, &store), newJournalVerify(t, &store), newJournalErase(t, &store), newJournalProve(t, &store),
		newJournalCheckpoint(t, &store), newJournalExport(t, &store), newSettle(t, &store),
	)
	return cmd
}

// withJournal runs f with the journal of the shared store.
func (t *terminal) withJournal(ctx context.Context, store string, f func(*journal.Journal) error) error {
	b, err := t.sharedStore(ctx, store)
	if err != nil {
		return err
	}
	return errors.Join(f(b.Journal), closing(b))
}

// withExistingJournal is withJournal for verbs that must not create a store.
func (t *terminal) withExistingJournal(ctx context.Context, store string, f func(*journal.Journal) error) error {
	if err := t.requireSharedStore(ctx, store); err != nil {
		return err
	}
	return t.withJournal(ctx, store, f)
}

func closing(b *store.Store) error {
	if err := b.Close(); err != nil {
		return no("", "the store cannot be closed: %w", err)
	}
	return nil
}

func newJournalVerify(t *terminal, store *string) *cobra.Command {
	var kept []string
	var key string
	var erased bool
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Check every record, hash and checkpoint, or those of an export",
		Long: "Check every record, hash and checkpoint of the journal, and name the first record that is not as it was.\n" +
			"With --checkpoint, also compare it with checkpoints that were kept elsewhere: that finds a journal that was cut\n" +
			"short, replaced by an older copy, or written anew. FILE is an export, for which no store is needed.",
		Example: "  ambit journal verify\n  ambit journal verify --checkpoint /mnt/elsewhere/checkpoint\n  ambit journal verify journal.jsonl --key ambit+5a0c3f1e+AQ…",
		Args:    atMost(1, "at most one export"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want := journal.Check{Progress: t.counting(), Erased: erased}
			for _, file := range kept {
				text, err := readSmall(file)
				if err != nil {
					return err
				}
				want.Checkpoints = append(want.Checkpoints, text)
			}
			if len(args) == 1 {
				return t.verifyExport(args[0], key, want)
			}
			if key != "" {
				return usage("the store's own key is used", "--key is for an export")
			}
			return t.withExistingJournal(cmd.Context(), *store, func(j *journal.Journal) error {
				report, err := j.Verify(cmd.Context(), want)
				if err != nil {
					return no(givenHint(want), "the journal cannot be verified: %w", err)
				}
				return t.journalReport(report, nil)
			})
		},
	}
	cmd.Flags().StringArrayVar(&kept, "checkpoint", nil, "a `file` with a checkpoint that was kept elsewhere; may be given again")
	cmd.Flags().StringVar(&key, "key", "", "the `key` of the journal that was exported")
	cmd.Flags().BoolVar(&erased, "allow-erased", false, "accept erased records that the journal does not mention; without it, one is the first bad record")
	return cmd
}

// givenHint is what to do about checkpoints that cannot be used.
func givenHint(want journal.Check) string {
	if len(want.Checkpoints) == 0 {
		return ""
	}
	return "--checkpoint takes what ambit journal checkpoint wrote, of this journal"
}

func (t *terminal) verifyExport(file, key string, want journal.Check) (err error) {
	if want.Key, err = parseKey(key); err != nil {
		return err
	}
	in := t.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return unreadable(file, err)
		}
		defer f.Close()
		in = f
	}
	text := bufio.NewReader(in)
	if first, err := text.Peek(1); err == nil && first[0] != '{' {
		return no("ambit journal export -o FILE writes one", "%s is no export of a journal", file)
	}
	report, err := journal.VerifyExport(text, want)
	if err != nil {
		return no(givenHint(want), "the export cannot be verified: %w", err)
	}
	known := !want.Key.IsZero() || isOurs(report.Key)
	return t.journalReport(report, &known)
}

// journalReport prints the result of a verification. Known reports whether the key of an
// export is known from another source; nil for the store's own journal.
func (t *terminal) journalReport(r journal.Report, known *bool) error {
	if t.interactive() {
		t.countRecords(0, 0)
	}
	if t.json {
		doc := struct {
			journal.Report
			Key   string `json:"key"`
			Known *bool  `json:"key_known,omitempty"`
		}{r, r.Key.String(), known}
		if err := t.document(doc); err != nil {
			return err
		}
	} else if r.OK {
		t.printf("%s %s", t.paint(green, "the journal is whole:"), count(int(r.Records), "record"))
		if r.Erased > 0 {
			verb := "were"
			if r.Erased == 1 {
				verb = "was"
			}
			t.printf(", of which %d %s erased", r.Erased, verb)
		}
		switch {
		case r.Records == 0:
		case r.Signed == r.Records:
			t.printf(", all signed")
		default:
			t.printf(", the newest %d not yet signed", r.Records-r.Signed)
		}
		t.printf("\n")
	} else {
		t.printf("%s %s\n", t.paint(boldRed, "the journal was changed:"), diag.Printable(r.Problem))
		t.printf("  first bad record: %d of log %d\n", r.FirstBad.Seq, r.FirstBad.Log)
	}
	t.warnUnknownKey(r.Key, known)
	if !r.OK {
		return errNo
	}
	return nil
}

// warnUnknownKey warns of a key that only the file itself names.
func (t *terminal) warnUnknownKey(key journal.Key, known *bool) {
	if known == nil || *known || key.IsZero() {
		return
	}
	t.notef("it is signed with the key %s", diag.Printable(key.String()))
	t.hintf("this machine does not know that key: compare it with the expected one, or give that one with --key")
}

// isOurs reports whether a key belongs to this home. It creates nothing.
func isOurs(key journal.Key) bool {
	h, err := home.Find()
	if err != nil {
		return false
	}
	if _, err := os.Stat(h.Root()); err != nil {
		return false
	}
	keys, err := identity.OpenKeys(h.Root())
	return err == nil && slices.ContainsFunc(keys.Signers(), key.IsOf)
}

func parseKey(s string) (journal.Key, error) {
	if s == "" {
		return journal.Key{}, nil
	}
	key, err := journal.ParseKey(s)
	if err != nil {
		return key, usage("ambit journal checkpoint --json shows a journal's key", "--key: %w", err)
	}
	return key, nil
}

func newJournalProve(t *terminal, store *string) *cobra.Command {
	var log int64
	var out, check, since, key string
	cmd := &cobra.Command{
		Use:   "prove SEQ",
		Short: "Prove that one record is in the journal, or check such a proof",
		Long: "Write a proof that one record is in the journal: it holds the record, a checkpoint, and the few hashes that\n" +
			"lead from one to the other, and is checked without the journal. With --since, prove instead that the\n" +
			"journal of an older checkpoint is the beginning of what there is now.",
		Example: "  ambit journal prove 1234 -o proof.json\n  ambit journal prove --check proof.json --key ambit+5a0c3f1e+AQ…\n" +
			"  ambit journal prove --since /mnt/elsewhere/checkpoint",
		Args: atMost(1, "one record's number"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+btoi(check != "")+btoi(since != "") != 1 {
				return usage("see: ambit journal prove --help", "say one of: a record's number, --since, --check")
			}
			if check != "" {
				return t.checkProof(check, key)
			}
			var prove func(*journal.Journal) (*journal.Proof, error)
			if since != "" {
				older, err := readSmall(since)
				if err != nil {
					return err
				}
				prove = func(j *journal.Journal) (*journal.Proof, error) { return j.ProveSince(cmd.Context(), older) }
			} else {
				seq, err := strconv.ParseInt(args[0], 10, 64)
				if err != nil || seq < 0 {
					return usage("ambit journal show lists them", "%q is not the number of a record", args[0])
				}
				prove = func(j *journal.Journal) (*journal.Proof, error) { return j.Prove(cmd.Context(), log, seq) }
			}
			return t.withExistingJournal(cmd.Context(), *store, func(j *journal.Journal) error {
				proof, err := prove(j)
				switch {
				case errors.Is(err, journal.ErrNoRecord):
					return no("ambit journal show lists them", "%w", err)
				case err != nil:
					return no("", "%w", err)
				}
				return t.deliver(out, func(w io.Writer) error { return writeJSON(w, proof) })
			})
		},
	}
	cmd.Flags().Int64Var(&log, "log", 0, "the record's log; there are others than 0 on PostgreSQL only")
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this `file`")
	cmd.Flags().StringVar(&check, "check", "", "check the proof in this `file`")
	cmd.Flags().StringVar(&since, "since", "", "prove that the journal continues the checkpoint in this `file`")
	cmd.Flags().StringVar(&key, "key", "", "the `key` of the journal that a proof is from")
	return cmd
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (t *terminal) checkProof(file, key string) error {
	want, err := parseKey(key)
	if err != nil {
		return err
	}
	text, err := readSmall(file)
	if err != nil {
		return err
	}
	proven, err := journal.VerifyProof(text, want)
	if err != nil {
		if t.json {
			return errors.Join(t.document(map[string]any{"ok": false, "problem": err.Error()}), errNo)
		}
		return no("", "the proof does not hold: %w", err)
	}
	known := !want.IsZero() || isOurs(proven.Key)
	if t.json {
		doc := map[string]any{
			"ok": true, "proves": proven.Proves, "log": proven.Log, "size": proven.Size,
			"key": proven.Key.String(), "key_known": known,
		}
		if proven.Proves == journal.Inclusion {
			doc["seq"], doc["record"] = proven.Entry.Seq, newRecordDocument(&proven.Entry)
		} else {
			doc["older"] = proven.Older
		}
		return t.document(doc)
	}
	if proven.Proves == journal.Inclusion {
		t.printf("%s record %d of log %d is one of the %d that were signed\n", t.paint(green, "the proof holds:"), proven.Entry.Seq, proven.Log, proven.Size)
		t.records([]journal.Entry{proven.Entry}, false)
	} else {
		t.printf("%s the older %d records of log %d are the first of the %d\n", t.paint(green, "the proof holds:"), proven.Older, proven.Log, proven.Size)
	}
	t.warnUnknownKey(proven.Key, &known)
	return nil
}

func newJournalCheckpoint(t *terminal, store *string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Sign how far the journal has come",
		Long: "Sign how far the journal has come, and print the note. Keep it where a process that can write the store cannot:\n" +
			"ambit journal verify --checkpoint compares the journal with it.",
		Example: "  ambit journal checkpoint -o /mnt/elsewhere/checkpoint",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.withExistingJournal(cmd.Context(), *store, func(j *journal.Journal) error {
				text, err := j.Checkpoint(cmd.Context())
				if err != nil {
					return no("", "cannot sign a checkpoint: %w", err)
				}
				if !t.json || out != "" {
					return t.deliver(out, func(w io.Writer) error { _, err := w.Write(text); return err })
				}
				c, err := j.Key().Open(text)
				if err != nil {
					return no("", "%w", err)
				}
				return t.document(map[string]any{"checkpoint": string(text), "log": c.Log, "size": c.Size, "root": c.Root, "key": j.Key().String()})
			})
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this `file`")
	return cmd
}

func newJournalExport(t *terminal, store *string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the whole journal as JSON Lines",
		Long: "Write the whole journal as JSON Lines: a line for each record with its place and hash, and a last line with\n" +
			"the checkpoints and the key. ambit journal verify FILE checks it on any machine, without the store.",
		Example: "  ambit journal export -o journal.jsonl\n  ambit journal export | jq -r '.record.tool'",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.json && out == "" {
				return usage("write to a file with -o, or leave --json out: it is JSON Lines", "an export is not one JSON document")
			}
			return t.withExistingJournal(cmd.Context(), *store, func(j *journal.Journal) error {
				return t.deliver(out, func(w io.Writer) error { return j.Export(cmd.Context(), w) })
			})
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this `file`")
	return cmd
}

// deliver writes an answer to stdout, or to a private file that appears complete or not at
// all.
func (t *terminal) deliver(file string, write func(io.Writer) error) (err error) {
	if file == "" {
		if err := write(t.out); err != nil {
			return no("", "cannot write it: %w", err)
		}
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".ambit-*") // mode 0600
	if err != nil {
		return usage("check the folder", "cannot write %s: %w", file, err)
	}
	defer os.Remove(f.Name())
	if err = errors.Join(write(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return no("", "cannot write %s: %w", file, err)
	}
	return t.show(map[string]any{"file": file}, func() {
		t.notef("written: %s", diag.Printable(file))
	})
}

func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeJSON(b.String()))
	return err
}

// readSmall reads a file with a limit on its size.
func readSmall(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, unreadable(file, err)
	}
	defer f.Close()
	const most = 8 << 20
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, unreadable(file, err)
	}
	if len(text) > most {
		return nil, usage("check the path", "%s is too large", file)
	}
	return text, nil
}

// counting shows how far a verification has come, to a person.
func (t *terminal) counting() func(done, of int64) {
	if !t.interactive() {
		return nil
	}
	var last time.Time
	return func(done, of int64) {
		if now := time.Now(); now.Sub(last) > time.Second/10 {
			last = now
			t.countRecords(done, of)
		}
	}
}

// countRecords rewrites a line of stderr, and removes it at 0 of 0.
func (t *terminal) countRecords(done, of int64) {
	switch {
	case done == 0:
		fmt.Fprint(t.err, "\r\x1b[K")
	case of == 0:
		fmt.Fprintf(t.err, "\r%d records", done)
	default:
		fmt.Fprintf(t.err, "\r%d of %d records", done, of)
	}
}
