package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ambit-run/ambit/internal/store/state"
)

// Export writes the whole journal as JSON Lines, one log after another, with one line for each record. The last line
// contains the newest checkpoint of each log and the journal's key. Export first makes a checkpoint of every log,
// because the checkpoints must cover all records.
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
			rows, err := j.rows(ctx, m.Log, from, min(from+page, m.Size))
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

// lastLine is the last line of an export.
type lastLine struct {
	Checkpoints []string `json:"checkpoints"`
	Key         string   `json:"key"`
}

// appendLine appends the export line for a record. The line contains the exact bytes of the record, because the hash
// covers these bytes. A record that is not a JSON object on one line is encoded as base64.
func appendLine(b []byte, log int64, r row) []byte {
	b = append(appendHead(b, log, r.seq), `"hash":"`...)
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

// anyLine is any line of an export: either the line of a record or the last line.
type anyLine struct {
	Log    *int64          `json:"log"`
	Seq    *int64          `json:"seq"`
	Hash   []byte          `json:"hash"`
	Record json.RawMessage `json:"record"`
	Erased bool            `json:"erased"`
	// Checkpoints is set only on the last line.
	Checkpoints *[]string `json:"checkpoints"`
	Key         string    `json:"key"`
}

const (
	// lineLimit is the maximum size of a line in bytes. It also limits the number of logs, because the last line
	// contains a checkpoint of every log.
	lineLimit = 4 * MaxRecord
	// rosterLimit is the maximum number of roster records. It limits the memory that a hostile export can use.
	rosterLimit = 1 << 20
)

// VerifyExport checks the records, the checkpoints and the roster of an export. It needs no store and works on any
// machine. An error means that the export could not be read completely.
func VerifyExport(r io.Reader, want Check) (Report, error) {
	v := &exported{want: want, roster: newRoster(), done: map[int64]*checker{}, given: map[int64][]claim{}}
	return v.report.finish(v.run(r))
}

type exported struct {
	want   Check
	roster *roster
	given  map[int64][]claim
	done   map[int64]*checker // the checkers of all logs that were read so far
	now    *checker           // the checker of the log that is being read
	report Report
}

func (v *exported) run(r io.Reader) error {
	for _, text := range v.want.Checkpoints {
		// The signature is checked later, when the keys are known.
		c, _, err := readNote(text)
		if err != nil {
			return fmt.Errorf("the given checkpoint cannot be used: %w", err)
		}
		v.given[c.Log] = append(v.given[c.Log], c.claim("the given checkpoint"))
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), lineLimit)
	var last *lastLine
	for n := 1; lines.Scan(); n++ {
		if last != nil {
			return v.fault("the export continues after its last line, which contains the checkpoints")
		}
		var line anyLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return v.fault("line %d is not a valid line of an export: %v", n, err)
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
			return v.fault("a line is longer than %d bytes", lineLimit)
		}
		return err
	}
	if last == nil {
		return v.fault("the export is truncated: its last line is missing")
	}
	return v.finish(last)
}

// fault returns a fault at the position of the next record.
func (v *exported) fault(format string, args ...any) error {
	if v.now == nil {
		return faultAt(0, 0, format, args...)
	}
	return faultAt(v.now.log, v.now.edge.size, format, args...)
}

func (v *exported) record(n int, line *anyLine) error {
	if line.Log == nil || line.Seq == nil || (line.Record == nil) != line.Erased {
		return v.fault("line %d is not a valid line of an export", n)
	}
	if v.now == nil || v.now.log != *line.Log {
		if err := v.startLog(*line.Log); err != nil {
			return err
		}
	}
	record := []byte(line.Record)
	if len(record) > 0 && record[0] == '"' {
		var raw []byte
		if err := json.Unmarshal(record, &raw); err != nil {
			return v.fault("the record on line %d is not valid base64: %v", n, err)
		}
		record = raw
	}
	if err := v.now.checkLeaf(*line.Seq, line.Hash, record); err != nil {
		return err
	}
	if record == nil {
		v.report.Erased++
	}
	if v.roster.size > rosterLimit {
		return v.fault("the roster has more than %d records, which is too many to check", rosterLimit)
	}
	v.report.Records++
	if v.want.Progress != nil && v.report.Records%page == 0 {
		v.want.Progress(v.report.Records, 0)
	}
	return nil
}

// startLog starts the checks of a new log. Logs must be in ascending order, because the roster in log 0 must be read
// first.
func (v *exported) startLog(log int64) error {
	if v.now != nil && log < v.now.log {
		return v.fault("the logs are in the wrong order: log %d comes after log %d", log, v.now.log)
	}
	if len(v.done) > rosterLimit/16 {
		return v.fault("there are too many logs to check")
	}
	c, err := newChecker(log, slices.Concat(v.given[log], v.roster.claims[log]), v.want.Erased, v.roster)
	if err != nil {
		return err
	}
	v.done[log], v.now = c, c
	return nil
}

// finish compares the records with the checkpoints on the last line.
func (v *exported) finish(last *lastLine) error {
	key := v.want.Key
	if key.IsZero() {
		var err error
		if key, err = ParseKey(last.Key); err != nil {
			return v.fault("the key on the last line of the export is invalid: %v", err)
		}
	}
	v.report.Key, v.report.Logs = key, len(v.done)
	keys, err := newKeyring(key, v.roster.handovers)
	if err != nil {
		return v.fault("the handovers between keys were changed: %v", err)
	}
	if err := v.roster.acceptErasures(keys); err != nil {
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
			return v.fault("a checkpoint on the last line of the export cannot be used: %v", err)
		}
		covered[m.Log] = true
		c := cmp.Or(v.done[m.Log], &checker{})
		size := c.edge.size
		c.signed = size
		switch {
		case size < m.Size:
			return faultAt(m.Log, size, "log %d ends after %d records; its checkpoint covers %d records", m.Log, size, m.Size)
		case size > m.Size:
			return faultAt(m.Log, m.Size, "log %d has %d records, but its checkpoint covers %d records", m.Log, size, m.Size)
		case c.edge.root() != m.Root:
			return faultAt(m.Log, c.held, "records %d to %d of log %d do not match its checkpoint", c.held, m.Size-1, m.Log)
		}
	}
	return v.checkComplete(covered)
}

// checkComplete checks that every log has a checkpoint, and that no claim about a log remains unchecked.
func (v *exported) checkComplete(covered map[int64]bool) error {
	if !covered[0] {
		return faultAt(0, 0, "log 0 has no checkpoint")
	}
	there := map[int64]bool{}
	for log, c := range v.done {
		there[log] = true
		if !covered[log] {
			return faultAt(log, 0, "log %d has no checkpoint", log)
		}
		if err := c.checkEnd(); err != nil {
			return err
		}
		v.report.Signed += c.signed
	}
	for log, claims := range v.given {
		if v.done[log] == nil && claims[0].size > 0 {
			return faultAt(log, 0, "log %d is missing, but the given checkpoint covers %d records", log, claims[0].size)
		}
	}
	return v.roster.checkLogs(there)
}
