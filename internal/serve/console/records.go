package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/flow"
	"github.com/ambit-run/ambit/internal/store/journal"
)

// record is a journal record as a sentence of the form "Caller Verb Tool of Agent End".
type record struct {
	journal.Entry
	Caller, Verb, End string
	Base              string // the prefix of all links
	// OfAgent means that the record is on the page of its agent. The page shows such a record without the name of the
	// agent, and without the date if the record is from today.
	OfAgent bool
}

// sentence describes a journal record in words. The parameter names maps principals to the names of their API keys.
func sentence(e journal.Entry, names map[string]string, base string) record {
	r := record{Entry: e, Base: base, Caller: callerName(e.Principal, names), Verb: "called"}
	switch {
	case e.Erased:
		r.End = "The content of this record was erased; only its hash remains."
	case e.Kind == "log_erased":
		r.End = "Old records were erased."
	case e.Kind == "log_handover":
		r.End = "The journal's key was replaced."
	case e.Kind != "":
		r.End = "This record is of the kind " + e.Kind + "."
	case e.Stage == "approve" && e.Code == "" && e.Decision == journal.Allow:
		r.Verb = "approved a call to"
	case e.Stage == "approve" && e.Code == "":
		r.Verb = "denied a call to"
	case e.Decision == journal.Deny:
		r.Verb = "was refused"
	case e.Decision == journal.Unknown:
		r.End = "; the outcome is unknown"
	case e.Agent == "" || e.Stage != "" && e.Code == "":
		r.Verb = "ran" // a change that a person made, with a detail such as "key new"
	case e.ToolError:
		r.End = "; the tool reported an error"
	case e.Decision == journal.Failed:
		r.End = "; the call failed"
	case e.Replay != "":
		r.End = "; the result of an earlier call was returned"
	}
	return r
}

// When returns the time of the record in the form that a list shows.
func (r *record) When() string {
	if r.OfAgent && time.Since(r.Time) > 12*time.Hour {
		return r.Time.UTC().Format("2 Jan 2006")
	}
	return r.Time.UTC().Format("15:04:05")
}

// IsCall reports whether the record is about a call or a change, and not about the journal itself.
func (r *record) IsCall() bool { return !r.Erased && r.Kind == "" }

// Text returns the sentence without markup.
func (r *record) Text() string {
	if !r.IsCall() {
		return r.End
	}
	text := r.Caller + " " + r.Verb + " " + r.Tool
	if r.Agent != "" {
		text += " of " + r.Agent
	}
	return text + r.End
}

// callerName returns the name of a caller for people. For an API key, it is the name that a person gave to the key.
func callerName(principal string, names map[string]string) string {
	if name := names[principal]; name != "" {
		return "key " + name
	}
	return principal
}

// keyNames returns the names of API keys, by principal. Without names, pages show the principals.
func (c *Console) keyNames(ctx context.Context) map[string]string {
	names, err := c.o.Backend.KeyNames(ctx)
	if err != nil {
		c.o.Log("console: the names of the API keys cannot be read: %v", err)
	}
	return names
}

// day contains the records of one day, newest first.
type day struct {
	Date    time.Time
	Records []record
}

// byDay groups records by their day in UTC. Erased records, which have no time, belong to the group before them.
func byDay(list []journal.Entry, names map[string]string, base string) (days []day) {
	for _, e := range list {
		date := e.Time.UTC().Truncate(24 * time.Hour)
		if len(days) == 0 || !e.Erased && !days[len(days)-1].Date.Equal(date) {
			days = append(days, day{Date: date})
		}
		last := &days[len(days)-1]
		last.Records = append(last.Records, sentence(e, names, base))
	}
	return days
}

// journalPage contains the journal records that match a filter. Older is the query of the page with older records, or
// "" if there are none.
type journalPage struct {
	Filter    map[string]string
	Filtered  bool
	Decisions []journal.Decision
	Days      []day
	Older     template.URL
	Newest    bool
}

// pageLength is the maximum number of records on a page.
const pageLength = 50

func (c *Console) journal(w http.ResponseWriter, r *http.Request, s *session) {
	q := r.URL.Query()
	p := journalPage{
		Filter: map[string]string{}, Decisions: []journal.Decision{journal.Allow, journal.Deny, journal.Failed, journal.Unknown},
	}
	for _, name := range []string{"agent", "tool", "principal", "call", "code", "decision"} {
		p.Filter[name] = strings.TrimSpace(q.Get(name))
		p.Filtered = p.Filtered || p.Filter[name] != ""
	}
	before := endsOf(q.Get("before"))
	p.Newest = before == nil
	found, err := c.o.Journal.Show(r.Context(), journal.Filter{
		Agent: p.Filter["agent"], Tool: p.Filter["tool"], Principal: p.Filter["principal"],
		Call: p.Filter["call"], Code: p.Filter["code"], Decision: journal.Decision(p.Filter["decision"]),
		Unknown: q.Get("unknown") == "true", Limit: pageLength + 1, Before: before,
	})
	if err == nil && len(found) > pageLength && before == nil {
		before, err = c.o.Journal.Ends(r.Context())
	}
	if err != nil {
		c.unavailable(w, r, s, "The journal cannot be read at the moment.", err)
		return
	}
	if len(found) > pageLength {
		found = found[:pageLength]
		for _, e := range found {
			before[e.Log] = min(before[e.Log], e.Seq)
		}
		q.Set("before", endsText(before))
		p.Older = template.URL("journal?" + q.Encode()) // Encode has escaped the query
	}
	p.Days = byDay(found, c.keyNames(r.Context()), s.base())
	c.show(w, r, s, http.StatusOK, "journal", "Journal", "journal", p)
}

// endsText converts the number of records of each log to a text. For example, 0.17,3.5 means that log 0 has 17 records
// and log 3 has 5. endsOf parses such a text. It returns nil if the text is invalid.
func endsText(ends journal.Ends) string {
	var parts []string
	for _, log := range slices.Sorted(maps.Keys(ends)) {
		parts = append(parts, fmt.Sprintf("%d.%d", log, ends[log]))
	}
	return strings.Join(parts, ",")
}

func endsOf(text string) journal.Ends {
	ends := journal.Ends{}
	for part := range strings.SplitSeq(text, ",") {
		log, seq, _ := strings.Cut(part, ".")
		l, err1 := strconv.ParseInt(log, 10, 64)
		n, err2 := strconv.ParseInt(seq, 10, 64)
		if err1 != nil || err2 != nil {
			return nil
		}
		ends[l] = n
	}
	return ends
}

// recordPage is one record with its proof. Problem is the reason why there is no proof.
type recordPage struct {
	record
	Arguments, JSON, Problem string
	Cut                      bool
	Proof                    *journal.Proof
	// Origins lists the calls that returned the values of doubtful arguments. It also lists the origins of the arguments
	// of those calls.
	Origins []origin
}

// origin is an edge of a small graph: a value went from the result of the call From to an argument of the call To.
type origin struct {
	From           *journal.Entry // nil if the journal does not contain the call
	Argument, Says string
	To             journal.Entry
}

// maxOrigins is the maximum number of edges on a page.
const maxOrigins = 12

// originsOf follows the arguments of a call back to the calls whose results first contained them.
func (c *Console) originsOf(ctx context.Context, e journal.Entry) (edges []origin, err error) {
	seen := map[string]bool{e.Call: true}
	for next := []journal.Entry{e}; len(next) > 0; next = next[1:] {
		for _, o := range next[0].Origins {
			if len(edges) == maxOrigins {
				return edges, nil
			}
			edge := origin{Argument: strings.TrimPrefix(o.Argument, "/"), Says: titleOf(o.Reason), To: next[0]}
			if o.Call != "" {
				found, err := c.o.Journal.Show(ctx, journal.Filter{Call: o.Call, Limit: 1})
				if err != nil {
					return nil, err
				}
				if len(found) > 0 {
					edge.From = &found[0]
				}
			}
			if edge.From != nil && !seen[o.Call] {
				seen[o.Call] = true
				next = append(next, *edge.From)
			}
			edges = append(edges, edge)
		}
	}
	return edges, nil
}

// titleOf explains a reason of package flow in a few words.
func titleOf(reason string) string {
	for _, m := range flow.Meanings {
		if string(m.Reason) == reason {
			return m.Title
		}
	}
	return reason
}

// maxRecord is the maximum number of bytes of a record that a page shows. It also limits the arguments of the record.
const maxRecord = 12 << 10

func (c *Console) record(w http.ResponseWriter, r *http.Request, s *session) {
	log, err1 := strconv.ParseInt(r.PathValue("log"), 10, 64)
	seq, err2 := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	p := recordPage{record: record{Entry: journal.Entry{Record: journal.Record{Log: log, Seq: seq}}}}
	err := errors.Join(err1, err2)
	if err == nil {
		p.Proof, err = c.o.Journal.Prove(r.Context(), log, seq)
	}
	if err1 != nil || err2 != nil || errors.Is(err, journal.ErrNoRecord) {
		c.failed(w, r, s, http.StatusNotFound, "The journal has no record with this number.", "")
		return
	}
	title := fmt.Sprintf("Record %d", seq)
	switch {
	case err != nil:
		p.Problem, p.End = err.Error(), "This record cannot be proven."
	case p.Proof.Record == nil:
		p.record = sentence(journal.Entry{Record: p.Record, Erased: true}, nil, s.base())
	default:
		raw := []byte(*p.Proof.Record)
		if json.Unmarshal(raw, &p.Record) != nil {
			p.Kind = "unreadable"
		}
		p.Log, p.Seq = log, seq
		p.record = sentence(p.Entry, c.keyNames(r.Context()), s.base())
		p.JSON, p.Cut = fit(approval.Show(raw), maxRecord)
		if len(p.Record.Arguments) > 0 {
			p.Arguments, _ = fit(approval.Show(p.Record.Arguments), maxRecord)
		}
		if p.Origins, err = c.originsOf(r.Context(), p.Entry); err != nil {
			c.unavailable(w, r, s, "The journal cannot be read at the moment.", err)
			return
		}
	}
	c.show(w, r, s, http.StatusOK, "record", title, "journal", &p)
}

// fit returns the beginning of a text that needs at most n bytes of markup, and reports whether it had to cut the text.
func fit(text string, n int) (string, bool) {
	size := 0
	for i, r := range text {
		switch r {
		case '"', '\'', '&', '<', '>':
			size += 5
		default:
			size += len(string(r))
		}
		if size > n {
			return text[:i] + "…", true
		}
	}
	return text, false
}

// clip shortens a text to n characters, and to 2n bytes of markup.
func clip(n int, text any) string {
	s := fmt.Sprint(text)
	if runes := []rune(s); len(runes) > n {
		s = string(runes[:n-1]) + "…"
	}
	s, _ = fit(s, 2*n)
	return s
}

// first returns the first n elements of a list.
func first(n int, list any) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, min(n, v.Len())).Interface()
}
