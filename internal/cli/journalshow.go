package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// recordFlags select records.
type recordFlags struct {
	agent, tool, principal, decision, code, call, since, until string
	unknown, follow                                            bool
	limit                                                      int
}

func (s *recordFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.limit, "limit", 100, "show at most this `many`")
	f.StringVar(&s.agent, "agent", "", "only of this `agent`: a name, an id or a digest")
	f.StringVar(&s.tool, "tool", "", "only of this `tool`: a name or a URI")
	f.StringVar(&s.principal, "principal", "", "only calls by this `principal`")
	f.StringVar(&s.decision, "decision", "", "only with this `decision`: allow, deny or unknown")
	f.StringVar(&s.code, "code", "", "only refusals with this `code`")
	f.StringVar(&s.call, "call", "", "only the call with this `id`")
	f.StringVar(&s.since, "since", "", "only since this `time`: RFC 3339, a date, or an age such as 90m")
	f.StringVar(&s.until, "until", "", "only until this `time`")
	f.BoolVar(&s.unknown, "unknown", false, "only calls whose outcome is unknown")
	f.BoolVar(&s.follow, "follow", false, "keep running and print new records as they are written")
	complete(cmd, "decision", []string{"allow", "deny", "unknown"})
}

func (s *recordFlags) filter() (journal.Filter, error) {
	f := journal.Filter{
		Agent: s.agent, Tool: s.tool, Principal: s.principal, Code: s.code, Call: s.call,
		Decision: journal.Decision(s.decision), Unknown: s.unknown, Limit: s.limit,
	}
	switch f.Decision {
	case "", journal.Allow, journal.Deny, journal.Unknown:
	default:
		return f, usage("use allow, deny or unknown", "--decision cannot be %q", s.decision)
	}
	if s.limit < 1 {
		return f, usage("", "--limit must be at least 1")
	}
	if s.unknown && s.follow {
		return f, usage("leave one of them out", "--unknown and --follow exclude each other")
	}
	var err error
	if f.Since, err = parseTime("--since", s.since); err == nil {
		f.Until, err = parseTime("--until", s.until)
	}
	return f, err
}

func parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil {
		return time.Now().Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usage("use 2026-01-31, 2026-01-31T12:00:00Z or 90m", "%s cannot be %q", flag, s)
}

func newJournalShow(t *terminal, store *string) *cobra.Command {
	var chosen recordFlags
	cmd := &cobra.Command{
		Use:   "show",
		Short: "List the newest records",
		Long: "List the newest records, newest first. A record is written when a call has ended or was refused; its time is when\n" +
			"the call began. --json adds arguments and reasons. With --follow, records are printed as they are written, oldest\n" +
			"first, and --json prints one document on each line.",
		Example: "  ambit journal show --since 1h --decision deny\n  ambit journal show --unknown\n  ambit journal show --follow --json",
		Args:    onlyFlags,
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.journalShow(cmd.Context(), *store, &chosen) },
	}
	chosen.flags(cmd)
	return cmd
}

// onlyFlags refuses arguments, with a hint for the ones that people try.
func onlyFlags(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage("one call: "+cmd.CommandPath()+" --call ID; one record, with its proof: ambit journal prove SEQ",
		"%s takes no arguments, but got %s", cmd.CommandPath(), count(len(args), "argument"))
}

func (t *terminal) journalShow(ctx context.Context, store string, chosen *recordFlags) error {
	filter, err := chosen.filter()
	if err != nil {
		return err
	}
	if !chosen.follow && !t.hasSharedStore(ctx, store) {
		return t.newest(nil)
	}
	return t.withJournal(ctx, store, func(j *journal.Journal) error {
		if chosen.follow {
			return t.journalFollow(ctx, j, filter)
		}
		entries, err := j.Show(ctx, filter)
		if err != nil {
			return no("", "the journal cannot be read: %w", err)
		}
		return t.newest(entries)
	})
}

// newest prints records that are sorted from newest to oldest.
func (t *terminal) newest(entries []journal.Entry) error {
	if t.json {
		docs := make([]recordDocument, len(entries))
		for i := range entries {
			docs[i] = newRecordDocument(&entries[i])
		}
		return t.document(map[string]any{"records": docs})
	}
	if len(entries) == 0 {
		t.notef("no records")
	}
	t.records(entries, true)
	return nil
}

// journalFollow prints the existing records, oldest first, and then new ones as they come.
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
			line, err := json.Marshal(newRecordDocument(&e))
			if err != nil {
				return err
			}
			t.printf("%s\n", escapeJSON(string(line)))
		} else {
			t.records([]journal.Entry{e}, false)
		}
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
	return nil // interrupted
}

// records prints a table. Column names and the hint about --json are for terminals only:
// programs that read the table get rows alone.
func (t *terminal) records(entries []journal.Entry, named bool) {
	rows := make([][]string, 0, len(entries)+1)
	named = named && t.cut && len(entries) > 0
	if named {
		var head []string
		for _, name := range []string{"SEQ", "TIME", "DECISION", "AGENT", "TOOL", "PRINCIPAL", "CALL", "WHY"} {
			head = append(head, t.paint(dim, name))
		}
		rows = append(rows, head)
	}
	for i := range entries {
		e := &entries[i]
		place := "-"
		if e.Seq >= 0 {
			place = strconv.FormatInt(e.Seq, 10)
		}
		if e.Log != 0 {
			place = strconv.FormatInt(e.Log, 10) + "/" + place
		}
		switch {
		case e.Erased:
			rows = append(rows, []string{t.paint(dim, place), t.paint(dim, "erased")})
			continue
		case e.Kind != "":
			what := e.Kind
			switch {
			case e.Handover != nil:
				what = fmt.Sprintf("%s rotated the root: from record %d of log %d on, a new key signs", e.Principal, e.Handover.Size, e.Handover.Log)
			case e.Roster != nil:
				what = fmt.Sprintf("%s erased the records before %d of log %d", e.Principal, e.Roster.Size, e.Roster.Log)
			}
			rows = append(rows, []string{t.paint(dim, place), t.paint(yellow, diag.Printable(what))})
			continue
		}
		why := e.Code
		switch {
		case e.ToolError:
			why = "the tool reports an error"
		case why == "" && e.Stage == "approve":
			why = "a person's answer"
		}
		rows = append(rows, []string{
			t.paint(dim, place), moment(e.Time), t.paint(decisionStyle(e.Decision), diag.Printable(string(e.Decision))),
			diag.Printable(e.Agent), diag.Printable(e.Tool), diag.Printable(e.Principal), diag.Printable(e.Call), t.paint(dim, diag.Printable(why)),
		})
	}
	t.table("", rows)
	if named {
		t.remarkf("arguments and reasons: %s journal show --json --call ID", myself())
	}
}

func decisionStyle(d journal.Decision) style {
	switch d {
	case journal.Allow:
		return green
	case journal.Deny:
		return red
	default:
		return yellow
	}
}

// recordDocument is a record in the output of --json. A record without a place in the
// journal yet has no seq.
type recordDocument struct {
	Seq *int64 `json:"seq"`
	journal.Entry
	URI        string     `json:"uri"`
	SideEffect string     `json:"side_effect"`
	Code       string     `json:"code"`
	Stage      string     `json:"stage"`
	Hash       *tlog.Hash `json:"hash,omitempty"`
}

func newRecordDocument(e *journal.Entry) recordDocument {
	d := recordDocument{Entry: *e, URI: e.URI, SideEffect: e.SideEffect, Code: e.Code, Stage: e.Stage}
	if e.Seq >= 0 {
		d.Seq, d.Hash = &e.Seq, &e.Hash
	}
	return d
}
