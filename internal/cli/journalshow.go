package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// recordFlags contains the flags that select journal records.
type recordFlags struct {
	agent, tool, principal, decision, code, call, since, until string
	unknown, follow                                            bool
	limit                                                      int
}

func (s *recordFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.limit, "limit", 100, "show at most this `number` of records")
	f.StringVar(&s.agent, "agent", "", "only records of this `agent`: a name, an id or a digest")
	f.StringVar(&s.tool, "tool", "", "only records of this `tool`: a name or a URI")
	f.StringVar(&s.principal, "principal", "", "only calls by this `principal`")
	f.StringVar(&s.decision, "decision", "", "only records with this `decision`: allow, deny, failed or unknown")
	f.StringVar(&s.code, "code", "", "only refusals with this `code`")
	f.StringVar(&s.call, "call", "", "only the call with this `id`")
	f.StringVar(&s.since, "since", "", "only records since this `time`: RFC 3339, a date, or an age such as 90m")
	f.StringVar(&s.until, "until", "", "only records until this `time`")
	f.BoolVar(&s.unknown, "unknown", false, "only calls with an unknown outcome")
	f.BoolVar(&s.follow, "follow", false, "keep running and print new records as they are written")
	complete(cmd, "decision", []string{"allow", "deny", "failed", "unknown"})
}

func (s *recordFlags) filter() (journal.Filter, error) {
	f := journal.Filter{
		Agent: s.agent, Tool: s.tool, Principal: s.principal, Code: s.code, Call: s.call,
		Decision: journal.Decision(s.decision), Unknown: s.unknown, Limit: s.limit,
	}
	switch f.Decision {
	case "", journal.Allow, journal.Deny, journal.Failed, journal.Unknown:
	default:
		return f, usage("use allow, deny, failed or unknown", "--decision cannot be %q", s.decision)
	}
	if s.limit < 1 {
		return f, usage("", "--limit must be at least 1")
	}
	if s.unknown && s.follow {
		return f, usage("use only one of these flags", "--unknown and --follow cannot be combined")
	}
	var err error
	if f.Since, err = parseTime("--since", s.since); err == nil {
		f.Until, err = parseTime("--until", s.until)
	}
	return f, err
}

// parseTime parses a flag value that is a date or an age. The age 90m, for example, means 90 minutes ago. An empty
// value yields the zero time.
func parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := home.Duration(s); err == nil {
		return time.Now().Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usage("use 2026-01-31, 2026-01-31T12:00:00Z, 7d or 90m", "%s cannot be %q", flag, s)
}

func newJournalShow(t *terminal, storeURL *string) *cobra.Command {
	var chosen recordFlags
	cmd := verb("show", onlyFlags, func(ctx context.Context, _ []string) error {
		return t.journalShow(ctx, *storeURL, &chosen)
	})
	chosen.flags(cmd)
	return cmd
}

// onlyFlags rejects all arguments. The hint contains the commands that show a single call or record.
func onlyFlags(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage("for one call, run: "+cmd.CommandPath()+" --call ID; for one record, run: ambit journal prove SEQ",
		"%s takes no arguments, but got %s", cmd.CommandPath(), count(len(args), "argument"))
}

func (t *terminal) journalShow(ctx context.Context, storeURL string, chosen *recordFlags) error {
	filter, err := chosen.filter()
	if err != nil {
		return err
	}
	if !chosen.follow && !t.hasSharedStore(storeURL) {
		return t.showNewest(nil, false)
	}
	return t.withSharedStore(ctx, storeURL, func(b *store.Store) error {
		t.readKeyNames(ctx, b)
		if chosen.follow {
			return t.journalFollow(ctx, b.Journal, filter)
		}
		entries, err := b.Journal.Show(ctx, filter)
		if err != nil {
			return no("", "the journal cannot be read: %w", err)
		}
		return t.showNewest(entries, filter.Call != "")
	})
}

// showNewest prints records, which must be sorted from newest to oldest. The records of one call are printed with their
// arguments.
func (t *terminal) showNewest(entries []journal.Entry, ofOneCall bool) error {
	return t.show(map[string]any{"records": each(entries, newRecordDocument)}, func() {
		if len(entries) == 0 {
			t.notef("no records")
		}
		t.printRecords(entries, true)
		if ofOneCall {
			t.printKept(entries)
		}
	})
}

// printKept prints the details and the arguments of records. The arguments were stored without secrets and personal
// data.
func (t *terminal) printKept(entries []journal.Entry) {
	for i := range entries {
		e := &entries[i]
		switch {
		case len(e.Arguments) > 0:
			t.printf("  arguments: %s\n", diag.Printable(string(e.Arguments)))
		case e.ArgumentsSize > 0:
			t.printf("  arguments: not kept (%d bytes)\n", e.ArgumentsSize)
		}
		if e.Detail != "" {
			t.printf("  detail: %s\n", diag.Printable(e.Detail))
		}
	}
}

// journalFollow prints the existing records, oldest first. It then prints new records until ctx is cancelled.
func (t *terminal) journalFollow(ctx context.Context, j *journal.Journal, filter journal.Filter) error {
	ends, err := j.Ends(ctx)
	if err != nil {
		return no("", "the journal cannot be read: %w", err)
	}
	filter.Before = ends
	entries, err := j.Show(ctx, filter)
	if err != nil {
		return no("", "the journal cannot be read: %w", err)
	}
	slices.Reverse(entries)
	one := func(e journal.Entry) error {
		if t.json {
			return t.jsonLine(newRecordDocument(e))
		}
		t.printRecords([]journal.Entry{e}, false)
		return t.flush()
	}
	for _, e := range entries {
		if err := one(e); err != nil {
			return no("", "%w", err)
		}
	}
	if err := j.Follow(ctx, ends, filter, one); ctx.Err() == nil {
		return no("", "the journal cannot be followed: %w", err)
	}
	return nil // ctx was cancelled
}

// printRecords prints a table of journal records. If the parameter named is true and standard output is a terminal,
// printRecords also prints column names and a hint about --json. Programs that read the output get only the rows.
func (t *terminal) printRecords(entries []journal.Entry, named bool) {
	rows := make([][]string, 0, len(entries)+1)
	named = named && t.cut && len(entries) > 0
	if named {
		head := []string{"SEQ", "TIME", "DECISION", "AGENT", "TOOL", "PRINCIPAL", "CALL", "WHY"}
		rows = append(rows, each(head, func(name string) string { return t.paint(dim, name) }))
	}
	for i := range entries {
		e := &entries[i]
		place := "-"
		if e.Seq >= 0 {
			place = fmt.Sprint(e.Seq)
		}
		if e.Log != 0 {
			place = fmt.Sprint(e.Log) + "/" + place
		}
		rows = append(rows, append([]string{t.paint(dim, place)}, t.recordColumns(e)...))
	}
	t.table("", rows)
	if named {
		t.remarkf("to see the arguments and reasons, run: %s journal show --call ID", ownCommand())
	}
}

// recordColumns returns all columns of a record except its number.
func (t *terminal) recordColumns(e *journal.Entry) []string {
	style, why := yellow, e.Code
	switch {
	case e.Erased:
		return []string{t.paint(dim, "erased")}
	case e.Handover != nil:
		h := e.Handover
		return []string{t.paint(yellow, diag.Printable(fmt.Sprintf(
			"%s rotated the root key; the new key signs record %d of log %d and all later ones", e.Principal, h.Size, h.Log)))}
	case e.Roster != nil:
		return []string{t.paint(yellow, diag.Printable(fmt.Sprintf(
			"%s erased the records before record %d of log %d", e.Principal, e.Roster.Size, e.Roster.Log)))}
	case e.Kind != "":
		return []string{t.paint(yellow, diag.Printable(e.Kind))}
	case e.Decision == journal.Allow:
		style = green
	case e.Decision == journal.Deny, e.Decision == journal.Failed:
		style = red
	}
	switch {
	case e.ToolError:
		why = "the tool reported an error"
	case why == "" && e.Stage == "approve":
		why = "decided by a person"
	}
	if seen := observed(e); seen != "" {
		why = strings.TrimPrefix(why+"; "+seen, "; ")
	}
	names := each([]string{e.Agent, e.Tool, t.withKeyName(e.Principal), e.Call}, diag.Printable)
	decision := t.paint(style, diag.Printable(string(e.Decision)))
	return slices.Concat([]string{moment(e.Time), decision}, names, []string{t.paint(dim, diag.Printable(why))})
}

// observed describes what ambit observed during a call: the hosts that the tool's server contacted, the operations that
// ambit denied to the server, the call's approval, and the origin of doubtful arguments.
func observed(e *journal.Entry) string {
	var parts []string
	if len(e.Contacted) > 0 {
		parts = append(parts, "contacted "+strings.Join(e.Contacted, ", "))
	}
	if len(e.Refused) > 0 {
		parts = append(parts, "the server was not allowed to: "+strings.Join(each(e.Refused, func(d journal.Denial) string {
			return d.Kind + " " + d.What
		}), ", "))
	}
	if e.Omitted > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", e.Omitted))
	}
	if e.Approval != "" {
		parts = append(parts, "approval "+e.Approval)
	}
	for _, o := range e.Origins {
		part := strings.TrimSpace(strings.TrimPrefix(o.Argument, "/") + " is doubtful: " + o.Reason)
		if o.Call != "" {
			part += ", first seen in the result of call " + o.Call
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// recordDocument is the JSON document for a journal record.
type recordDocument struct {
	// Seq is nil if the record has no number yet.
	Seq *int64 `json:"seq"`
	journal.Entry
	URI        string     `json:"uri"`
	SideEffect string     `json:"side_effect"`
	Code       string     `json:"code"`
	Stage      string     `json:"stage"`
	Hash       *tlog.Hash `json:"hash,omitempty"`
}

func newRecordDocument(e journal.Entry) recordDocument {
	d := recordDocument{Entry: e, URI: e.URI, SideEffect: e.SideEffect, Code: e.Code, Stage: e.Stage}
	if e.Seq >= 0 {
		d.Seq, d.Hash = &e.Seq, &e.Hash
	}
	return d
}

func newJournalErase(t *terminal, storeURL *string) *cobra.Command {
	var before string
	cmd := verb("erase --before TIME", exactly(0, "no arguments"), func(ctx context.Context, _ []string) error {
		if before == "" {
			return usage("see: ambit journal erase --help", "ambit journal erase needs --before TIME")
		}
		at, err := parseTime("--before", before)
		if err != nil {
			return err
		}
		if at.After(time.Now()) {
			return usage("use a time in the past", "--before %q is in the future", before)
		}
		return t.withJournal(ctx, *storeURL, func(j *journal.Journal) error {
			n, err := j.Erase(ctx, at, identity.LocalName())
			if err != nil {
				return no("to erase the rest, run the command again", "not all records were erased: %w", err)
			}
			return t.show(map[string]any{"erased": n, "before": at.UTC()}, func() {
				t.notef("erased the content of %s", count(int(n), "record"))
			})
		})
	})
	cmd.Flags().StringVar(&before, "before", "",
		"erase records before this `time`: an age (90d, 12h) or a date (2026-01-31T00:00:00Z)")
	return cmd
}

// readRetention returns how long ambit keeps the content of journal records. The setting is in the [retention] table of
// config.toml. If it is not set, readRetention returns 0.
func readRetention(h home.Home) (age time.Duration, err error) {
	var keep struct {
		Journal string `toml:"journal"`
	}
	if _, err := home.ReadTable(h.Config(), "retention", &keep); err != nil || keep.Journal == "" {
		return 0, err
	}
	if age, err = home.Duration(keep.Journal); err != nil || age == 0 {
		return 0, fmt.Errorf(`%s: [retention]: journal must be an age such as "90d"`, h.Config())
	}
	return age, nil
}

// retentionCheck is the interval at which a daemon erases old records.
const retentionCheck = time.Hour

// startRetention starts a goroutine that regularly erases old records until ctx is cancelled. If no retention time is
// set, startRetention does nothing.
func (t *terminal) startRetention(ctx context.Context, h home.Home, j *journal.Journal) error {
	age, err := readRetention(h)
	if err != nil {
		return no("fix "+diag.ShellWord(h.Config()), "%w", err)
	}
	if age == 0 {
		return nil
	}
	go func() {
		tick := time.NewTicker(retentionCheck)
		defer tick.Stop()
		for ctx.Err() == nil {
			n, err := j.Erase(ctx, time.Now().Add(-age), "retention")
			if n > 0 {
				t.logf("erased the content of %s older than %s", count(int(n), "record"), age)
			}
			if err != nil && ctx.Err() == nil {
				t.troublef("ambit will try again in an hour, because some old records could not be erased: %v", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

func newSettle(t *terminal, storeURL *string) *cobra.Command {
	var done, notDone bool
	cmd := verb("settle ID", exactly(1, "the id of a call"), func(ctx context.Context, args []string) error {
		if done == notDone {
			return usage("add --done or --not-done", "ambit journal settle needs to know whether the call was carried out")
		}
		return t.withExistingStore(ctx, *storeURL, func(b *store.Store) error {
			err := gateway.Settle(ctx, b, args[0], done, identity.LocalName())
			switch {
			case errors.Is(err, gateway.ErrNotUnknown):
				return no("to list the calls with an unknown outcome, run: ambit journal show --unknown", "%w", err)
			case err != nil:
				return no("", "the call cannot be settled: %w", err)
			}
			outcome := "was not carried out"
			if done {
				outcome = "was carried out"
			}
			doc := map[string]any{"call": args[0], "done": done}
			return t.say(doc, "settled: call %s %s\n", diag.Printable(args[0]), outcome)
		})
	})
	cmd.Flags().BoolVar(&done, "done", false, "the call was carried out")
	cmd.Flags().BoolVar(&notDone, "not-done", false, "the call was definitely not carried out")
	return cmd
}
