package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	var storeURL string
	var chosen recordFlags
	cmd := verb("journal", exactly(0, "no arguments except a verb"), func(ctx context.Context, _ []string) error {
		return t.journalShow(ctx, storeURL, &chosen)
	})
	sharedStoreFlag(cmd.PersistentFlags(), &storeURL)
	chosen.flags(cmd)
	cmd.AddCommand(
		newJournalShow(t, &storeURL), newJournalVerify(t, &storeURL), newJournalErase(t, &storeURL),
		newJournalProve(t, &storeURL), newJournalCheckpoint(t, &storeURL), newJournalExport(t, &storeURL),
		newSettle(t, &storeURL),
	)
	return cmd
}

// withJournal calls f with the journal of the store that sharedStore opens. It returns an error if the store does not
// exist.
func (t *terminal) withJournal(ctx context.Context, storeURL string, f func(*journal.Journal) error) error {
	return t.withExistingStore(ctx, storeURL, func(b *store.Store) error { return f(b.Journal) })
}

func newJournalVerify(t *terminal, storeURL *string) *cobra.Command {
	var kept []string
	var key keyFlags
	var erased bool
	cmd := verb("verify [FILE]", atMost(1, "at most one export"), func(ctx context.Context, args []string) error {
		want := journal.Check{Progress: t.recordCounter(), Erased: erased}
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
		if key != (keyFlags{}) {
			return usage("to use the store's own key, leave out both flags",
				"--key and --trust-on-first-use can be used only with an export")
		}
		return t.withExistingStore(ctx, *storeURL, func(b *store.Store) error {
			report, err := b.Journal.Verify(ctx, want)
			if err != nil {
				return no(checkpointHint(want), "the journal cannot be verified: %w", err)
			}
			problems, err := checkAuthority(ctx, b)
			if err != nil {
				return no("", "the authority in the store cannot be verified: %w", err)
			}
			return t.journalReport(report, problems, nil)
		})
	})
	cmd.Flags().StringArrayVar(&kept, "checkpoint", nil,
		"a `file` with a checkpoint that you saved earlier; can be repeated")
	key.flags(cmd, "the public `key` of the journal that was exported")
	cmd.Flags().BoolVar(&erased, "allow-erased", false,
		"accept erased records even if the journal has no record of the erasure")
	return cmd
}

// checkpointHint returns a hint for a failed verification with --checkpoint. Without --checkpoint, the hint is empty.
func checkpointHint(want journal.Check) string {
	if len(want.Checkpoints) == 0 {
		return ""
	}
	return "give --checkpoint a file that was written for this journal with: ambit journal checkpoint -o FILE"
}

func (t *terminal) verifyExport(file string, key keyFlags, want journal.Check) (err error) {
	if want.Key, err = key.parse(); err != nil {
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
		return no("to write an export, run: ambit journal export -o FILE", "%s is not an export of a journal", file)
	}
	report, err := journal.VerifyExport(text, want)
	if err != nil {
		return no(checkpointHint(want), "the export cannot be verified: %w", err)
	}
	signer := key.signer(report.Key)
	return t.journalReport(report, nil, &signer)
}

// journalReport prints the result of a verification. For the store's own journal, the signer is nil.
func (t *terminal) journalReport(r journal.Report, problems []authorityProblem, signer *signer) error {
	if t.interactive() {
		fmt.Fprint(t.err, "\r\x1b[K") // clear the progress line
	}
	trusted, known := true, (*bool)(nil)
	if signer != nil {
		defer t.warnUnknownKey(signer)
		trusted, known = signer.trusted, &signer.known
	}
	doc := struct {
		journal.Report
		Key   string `json:"key"`
		Known *bool  `json:"key_known,omitempty"`
		// Authority lists the differences between the store and its register of authority.
		Authority []authorityProblem `json:"authority,omitempty"`
	}{r, r.Key.String(), known, problems}
	intact := r.OK
	doc.OK = intact && trusted && len(problems) == 0
	return t.judge(doc.OK, doc, func() {
		defer t.printAuthority(problems)
		if !intact {
			t.printf("%s %s\n", t.paint(boldRed, "the journal was changed:"), diag.Printable(r.Problem))
			t.printf("  the first bad record is record %d of log %d\n", r.FirstBad.Seq, r.FirstBad.Log)
			return
		}
		verdict := t.paint(green, "the journal is intact:")
		if !trusted {
			verdict = t.paint(yellow, "the export is consistent, but its key is unknown:")
		}
		t.printf("%s %s", verdict, count(int(r.Records), "record"))
		switch {
		case r.Erased == 1:
			t.printf(", of which 1 was erased")
		case r.Erased > 1:
			t.printf(", of which %d were erased", r.Erased)
		}
		switch {
		case r.Records == 0:
		case r.Signed == r.Records:
			t.printf(", all signed")
		default:
			t.printf(", the newest %d not yet signed", r.Records-r.Signed)
		}
		t.printf("\n")
	})
}

// keyFlags contains the flags that say which keys may have signed a file.
type keyFlags struct {
	key        string
	trustFirst bool
}

func (k *keyFlags) flags(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&k.key, "key", "", usage)
	cmd.Flags().BoolVar(&k.trustFirst, "trust-on-first-use", false,
		"accept a key that this machine does not know, and print it; use it with --key from then on")
}

func (k *keyFlags) parse() (journal.Key, error) {
	switch {
	case k.key == "":
		return journal.Key{}, nil
	case k.trustFirst:
		return journal.Key{}, usage("leave out one of the flags", "--key and --trust-on-first-use cannot be combined")
	}
	key, err := journal.ParseKey(k.key)
	if err != nil {
		return key, usage("to see the key, run ambit whoami on the journal's machine", "--key: %w", err)
	}
	return key, nil
}

// signer is the key that signed a file. The key is known if the user gave it with --key, or if it belongs to a root key
// in ambit's home folder. Known keys are trusted. With --trust-on-first-use, every key is trusted. If the key is not
// trusted, anyone could have signed the file.
type signer struct {
	key            journal.Key
	known, trusted bool
}

func (k *keyFlags) signer(key journal.Key) signer {
	known := k.key != "" || isOurs(key)
	return signer{key: key, known: known, trusted: known || k.trustFirst}
}

// warnUnknownKey warns if the verified file is the only source of the key.
func (t *terminal) warnUnknownKey(s *signer) {
	if s.known || s.key.IsZero() {
		return
	}
	t.notef("the file is signed with the key %s, which this machine does not know", diag.Printable(s.key.String()))
	if !s.trusted {
		t.hintf("anyone could have signed the file; get the key from the journal's owner (ambit whoami) and add " +
			"--key KEY, or add --trust-on-first-use")
	}
}

// isOurs reports whether the key belongs to a root key in ambit's home folder. If the file of root keys is missing,
// isOurs returns false and does not create the file.
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

func newJournalProve(t *terminal, storeURL *string) *cobra.Command {
	var log int64
	var out, check, since string
	var key keyFlags
	cmd := verb("prove SEQ", atMost(1, "one record's number"), func(ctx context.Context, args []string) error {
		if len(args)+btoi(check != "")+btoi(since != "") != 1 {
			return usage("see: ambit journal prove --help", "give exactly one of SEQ, --since and --check")
		}
		if check != "" {
			return t.checkProof(check, key)
		}
		var older []byte
		var seq int64
		var err error
		if since != "" {
			if older, err = readSmall(since); err != nil {
				return err
			}
		} else if seq, err = strconv.ParseInt(args[0], 10, 64); err != nil || seq < 0 {
			return usage(listRecords, "%q is not the number of a record", args[0])
		}
		return t.withJournal(ctx, *storeURL, func(j *journal.Journal) error {
			var proof *journal.Proof
			if since != "" {
				proof, err = j.ProveSince(ctx, older)
			} else {
				proof, err = j.Prove(ctx, log, seq)
			}
			if errors.Is(err, journal.ErrNoRecord) {
				return no(listRecords, "%w", err)
			}
			if err != nil {
				return no("", "%w", err)
			}
			return t.deliver(out, func(w io.Writer) error { return writeJSON(w, proof) })
		})
	})
	cmd.Flags().Int64Var(&log, "log", 0, "the number of the record's log; only PostgreSQL has logs other than 0")
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this `file`")
	cmd.Flags().StringVar(&check, "check", "", "check the proof in this `file`")
	cmd.Flags().StringVar(&since, "since", "",
		"prove that the journal begins with the records of the checkpoint in this `file`")
	key.flags(cmd, "the public `key` of the journal that the proof comes from")
	return cmd
}

const listRecords = "to list the records, run: ambit journal show"

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (t *terminal) checkProof(file string, key keyFlags) error {
	want, err := key.parse()
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
		return no("", "the proof is not valid: %w", err)
	}
	signer := key.signer(proven.Key)
	doc := map[string]any{
		"ok": signer.trusted, "proves": proven.Proves, "log": proven.Log, "size": proven.Size,
		"key": proven.Key.String(), "key_known": signer.known,
	}
	if proven.Proves == journal.Inclusion {
		doc["seq"], doc["record"] = proven.Entry.Seq, newRecordDocument(proven.Entry)
	} else {
		doc["older"] = proven.Older
	}
	return t.judge(signer.trusted, doc, func() {
		defer t.warnUnknownKey(&signer)
		verdict := t.paint(green, "the proof is valid:")
		if !signer.trusted {
			verdict = t.paint(yellow, "the proof is consistent, but its key is unknown:")
		}
		if proven.Proves == journal.Inclusion {
			t.printf("%s record %d of log %d is one of the %d signed records\n",
				verdict, proven.Entry.Seq, proven.Log, proven.Size)
			t.printRecords([]journal.Entry{proven.Entry}, false)
			return
		}
		t.printf("%s log %d now has %d records, and the first %d are the records of the older checkpoint\n",
			verdict, proven.Log, proven.Size, proven.Older)
	})
}

func newJournalCheckpoint(t *terminal, storeURL *string) *cobra.Command {
	var out string
	cmd := verb("checkpoint", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		return t.withJournal(ctx, *storeURL, func(j *journal.Journal) error {
			text, err := j.Checkpoint(ctx)
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
			return t.document(map[string]any{
				"checkpoint": string(text), "log": c.Log, "size": c.Size, "root": c.Root, "key": j.Key().String(),
			})
		})
	})
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this `file`")
	return cmd
}

func newJournalExport(t *terminal, storeURL *string) *cobra.Command {
	var out string
	cmd := verb("export", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		if t.json && out == "" {
			return usage("write to a file with -o, or leave out --json", "an export is JSON Lines, not one JSON document")
		}
		return t.withJournal(ctx, *storeURL, func(j *journal.Journal) error {
			return t.deliver(out, func(w io.Writer) error { return j.Export(ctx, w) })
		})
	})
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this `file`")
	return cmd
}

// deliver writes the output to a file, or to standard output if the file name is empty. Only the user can read the
// file. If writing fails, no incomplete file remains.
func (t *terminal) deliver(file string, write func(io.Writer) error) error {
	if file == "" {
		if err := write(t.out); err != nil {
			return no("", "cannot write to standard output: %w", err)
		}
		return nil
	}
	opened := false
	err := home.ReplaceBy(file, 0o600, func(w io.Writer) error { opened = true; return write(w) })
	switch {
	case err != nil && !opened:
		return usage("check that you can write to the file's folder", "cannot write %s: %w", file, err)
	case err != nil:
		return no("", "cannot write %s: %w", file, err)
	}
	return t.show(map[string]any{"file": file}, func() {
		t.notef("wrote %s", diag.Printable(file))
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

// readSmall reads a file. It rejects files larger than 8 MiB.
func readSmall(file string) ([]byte, error) {
	text, err := readBounded(file)
	if err != nil {
		return nil, unreadable(file, err)
	}
	return text, nil
}

// readBounded is like readSmall, but returns errors of the operating system unchanged.
func readBounded(file string) ([]byte, error) {
	const most = 8 << 20
	text, err := readStart(file, most)
	if len(text) > most {
		return nil, usage("check the path", "%s is too large", file)
	}
	return text, err
}

// readStart reads up to most+1 bytes of a file. If the result has more than most bytes, the file is too large.
func readStart(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}

// recordCounter returns a callback that prints the number of verified records. The callback is nil if standard error is
// not a terminal.
func (t *terminal) recordCounter() func(done, total int64) {
	if !t.interactive() {
		return nil
	}
	var last time.Time
	return func(done, _ int64) {
		if now := time.Now(); now.Sub(last) > time.Second/10 {
			last = now
			fmt.Fprintf(t.err, "\r%d records", done)
		}
	}
}
