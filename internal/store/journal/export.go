package journal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Export writes the whole journal as JSON Lines: a line for each record, log by
// log, and a last one with the checkpoints that cover them and the key. It signs
// first, so that nothing is left uncovered.
func (j *Journal) Export(ctx context.Context, w io.Writer) error {
	if _, err := j.Checkpoint(ctx); err != nil {
		return err
	}
	marks, err := j.newestMarks(ctx)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	var line []byte
	for _, m := range marks {
		for from := int64(0); from < m.Size; from += page {
			var rows []row
			err := j.db.Read(ctx, func(tx state.Tx) error {
				rows = rows[:0]
				return readRows(tx, m.Log, from, min(from+page, m.Size), func(r row) error { rows = append(rows, r); return nil })
			})
			if err != nil {
				return err
			}
			for _, r := range rows {
				line = appendLine(line[:0], m.Log, r)
				if _, err := out.Write(line); err != nil {
					return err
				}
			}
		}
	}
	last := lastLine{Key: j.key.String(), Checkpoints: []string{}}
	for _, m := range marks {
		last.Checkpoints = append(last.Checkpoints, string(m.Note))
	}
	text, err := json.Marshal(last)
	if err != nil {
		return err
	}
	if _, err := out.Write(append(text, '\n')); err != nil {
		return err
	}
	return out.Flush()
}

func (j *Journal) newestMarks(ctx context.Context) (marks []Checkpoint, err error) {
	err = j.db.Read(ctx, func(tx state.Tx) error {
		marks = marks[:0]
		heads, err := readHeads(tx)
		if err != nil {
			return err
		}
		for _, h := range heads {
			m, err := newestMark(tx, h.log)
			if err != nil {
				return err
			}
			if m != nil {
				marks = append(marks, *m)
			}
		}
		return nil
	})
	return marks, err
}

// lastLine ends an export.
type lastLine struct {
	Checkpoints []string `json:"checkpoints"`
	Key         string   `json:"key"`
}

// appendLine writes a record as it is, because its bytes count; one that is not
// JSON on one line, as it was written, goes as base64.
func appendLine(b []byte, log int64, r row) []byte {
	b = append(b, `{"log":`...)
	b = strconv.AppendInt(b, log, 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, r.seq, 10)
	b = append(b, `,"hash":"`...)
	b = base64.StdEncoding.AppendEncode(b, r.hash)
	b = append(b, '"')
	switch {
	case r.record == nil && !r.odd:
		b = append(b, `,"erased":true`...)
	case len(r.record) > 0 && r.record[0] == '{' && !bytes.ContainsAny(r.record, "\r\n") && json.Valid(r.record):
		b = append(b, `,"record":`...)
		b = append(b, r.record...)
	default:
		b = append(b, `,"record":"`...)
		b = base64.StdEncoding.AppendEncode(b, r.record)
		b = append(b, '"')
	}
	return append(b, "}\n"...)
}

// anyLine is a line of an export, of either kind.
type anyLine struct {
	Log    *int64          `json:"log"`
	Seq    *int64          `json:"seq"`
	Hash   []byte          `json:"hash"`
	Record json.RawMessage `json:"record"`
	Erased bool            `json:"erased"`
	// Checkpoints make it the last one.
	Checkpoints *[]string `json:"checkpoints"`
	Key         string    `json:"key"`
}

const (
	// lineLimit bounds a line of an export. The last one may be long, with
	// many logs; it also bounds how many those are.
	lineLimit = 4 * MaxRecord
	// rosterLimit bounds what a hostile export makes us remember.
	rosterLimit = 1 << 20
)

// VerifyExport checks an export on any machine: every record, the checkpoints at
// its end, and the roster. An error says that it could not be read to its end.
func VerifyExport(r io.Reader, want Check) (Report, error) {
	v := &exported{want: want, roster: newRoster(), done: map[int64]*checker{}, given: map[int64][]vow{}}
	return v.report.finish(v.run(r))
}

type exported struct {
	want   Check
	roster *roster
	given  map[int64][]vow
	done   map[int64]*checker // every log that was seen
	now    *checker           // the log being read
	report Report
}

func (v *exported) run(r io.Reader) error {
	for _, text := range v.want.Checkpoints {
		// Who signed them is checked when the key is known.
		c, _, err := readNote(text)
		if err != nil {
			return fmt.Errorf("the given checkpoint cannot be used: %w", err)
		}
		v.given[c.Log] = append(v.given[c.Log], vow{size: c.Size, root: c.Root, by: "the given checkpoint", signed: true})
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), lineLimit)
	var last *lastLine
	for n := 1; lines.Scan(); n++ {
		if last != nil {
			return v.fault("something follows the last line of the export")
		}
		var line anyLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return v.fault("line %d is not of an export: %v", n, err)
		}
		if line.Checkpoints != nil {
			last = &lastLine{*line.Checkpoints, line.Key}
			continue
		}
		if err := v.record(n, &line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return v.fault("a line is longer than a record can be")
		}
		return err
	}
	if last == nil {
		return v.fault("the export has no last line: it was cut short")
	}
	return v.finish(last)
}

// fault is at the place that has been reached.
func (v *exported) fault(format string, args ...any) error {
	if v.now == nil {
		return faultAt(0, 0, format, args...)
	}
	return faultAt(v.now.log, v.now.edge.size, format, args...)
}

func (v *exported) record(n int, line *anyLine) error {
	if line.Log == nil || line.Seq == nil || (line.Record == nil) != line.Erased {
		return v.fault("line %d is not of an export", n)
	}
	if v.now == nil || v.now.log != *line.Log {
		if err := v.next(*line.Log); err != nil {
			return err
		}
	}
	record := []byte(line.Record)
	if len(record) > 0 && record[0] == '"' {
		var raw []byte
		if err := json.Unmarshal(record, &raw); err != nil {
			return v.fault("line %d has no record: %v", n, err)
		}
		record = raw
	}
	if err := v.now.leaf(*line.Seq, line.Hash, record); err != nil {
		return err
	}
	if record == nil {
		v.report.Erased++
	}
	if v.roster.size > rosterLimit {
		return v.fault("the roster is longer than can be checked")
	}
	v.report.Records++
	if v.want.Progress != nil && v.report.Records%page == 0 {
		v.want.Progress(v.report.Records, 0)
	}
	return nil
}

// next begins a log. Log 0 comes first, so that its roster is known.
func (v *exported) next(log int64) error {
	if v.now != nil && log < v.now.log {
		return v.fault("log %d comes after log %d", log, v.now.log)
	}
	if len(v.done) > rosterLimit/16 {
		return v.fault("there are more logs than can be checked")
	}
	c, err := newChecker(log, slices.Concat(v.given[log], v.roster.vows[log]), v.want.Erased, v.roster)
	if err != nil {
		return err
	}
	v.done[log], v.now = c, c
	return nil
}

// finish holds what was read to the last line.
func (v *exported) finish(last *lastLine) error {
	key := v.want.Key
	if key.IsZero() {
		var err error
		if key, err = ParseKey(last.Key); err != nil {
			return v.fault("the export's key: %v", err)
		}
	}
	v.report.Key, v.report.Logs = key, len(v.done)
	keys, err := newKeyring(key, v.roster.handovers)
	if err != nil {
		return v.fault("the hand-overs from key to key were changed: %v", err)
	}
	if err := v.roster.believe(keys); err != nil {
		return err
	}
	for _, text := range v.want.Checkpoints {
		if _, err := keys.open(text); err != nil {
			return fmt.Errorf("the given checkpoint cannot be used: %w", err)
		}
	}
	covered := map[int64]bool{}
	for _, text := range last.Checkpoints {
		m, err := keys.open([]byte(text))
		if err != nil {
			return v.fault("a checkpoint of the export cannot be used: %v", err)
		}
		covered[m.Log] = true
		var size int64
		var root tlog.Hash = (&edge{}).root()
		if c := v.done[m.Log]; c != nil {
			size, root = c.edge.size, c.edge.root()
			c.signed = size
		}
		switch {
		case size < m.Size:
			return faultAt(m.Log, size, "log %d ends after %d records, but its checkpoint tells of %d", m.Log, size, m.Size)
		case size > m.Size:
			return faultAt(m.Log, m.Size, "log %d has %d records, but its checkpoint tells of %d", m.Log, size, m.Size)
		case root != m.Root:
			held := int64(0)
			if c := v.done[m.Log]; c != nil {
				held = c.held
			}
			return faultAt(m.Log, held, "records %d to %d of log %d are not those that its checkpoint was made of", held, m.Size-1, m.Log)
		}
	}
	return v.whole(covered)
}

// whole checks that no log and no vow is left over.
func (v *exported) whole(covered map[int64]bool) error {
	if !covered[0] {
		return faultAt(0, 0, "log 0 has no checkpoint")
	}
	there := map[int64]bool{}
	for log, c := range v.done {
		there[log] = true
		if !covered[log] {
			return faultAt(log, 0, "log %d has no checkpoint", log)
		}
		if err := c.end(); err != nil {
			return err
		}
		v.report.Signed += c.signed
	}
	for log, vows := range v.given {
		if v.done[log] == nil && vows[0].size > 0 {
			return faultAt(log, 0, "there is no log %d, but the given checkpoint tells of %d records", log, vows[0].size)
		}
	}
	return v.roster.missing(there)
}
