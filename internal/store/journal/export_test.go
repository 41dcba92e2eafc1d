package journal

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

func export(t testing.TB, j *Journal) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := j.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func verifyExport(t testing.TB, text []byte, want Check) Report {
	t.Helper()
	r, err := VerifyExport(bytes.NewReader(text), want)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func manyLogs(t testing.TB, each int) *Journal {
	t.Helper()
	db := statetest.Open(t)
	for log := range int64(2) {
		fill(t, open(asLog{db, log + 1}), each)
	}
	return open(asLog{db, 3})
}

func TestExportIsVerifiedWithoutTheStore(t *testing.T) {
	t.Run("one log", func(t *testing.T) {
		j := newJournal(t, 600)
		exec(t, j, `UPDATE leaves SET record = NULL WHERE place = 100`)
		text := export(t, j)
		if r := verifyExport(t, text, Check{Erased: true}); !r.OK || r.Records != 600 || r.Signed != 600 || r.Erased != 1 || !r.Key.Equal(j.key) {
			t.Errorf("got report %+v", r)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		var first struct {
			Seq    int64
			Record Record
		}
		if err := json.Unmarshal([]byte(lines[3]), &first); err != nil || first.Seq != 3 || first.Record.Code != "side_effect_denied" {
			t.Errorf("got line %+v, %v", first, err)
		}
	})
	t.Run("many logs", func(t *testing.T) {
		text := export(t, manyLogs(t, 20))
		if r := verifyExport(t, text, Check{}); !r.OK || r.Logs != 3 || r.Signed != r.Records {
			t.Errorf("got report %+v", r)
		}
	})
	t.Run("empty journal", func(t *testing.T) {
		if r := verifyExport(t, export(t, open(statetest.Open(t))), Check{}); !r.OK || r.Records != 0 {
			t.Errorf("got report %+v", r)
		}
	})
}

func TestVerifyExportFindsTampering(t *testing.T) {
	const size = 50
	j := newJournal(t, size)
	text := export(t, j)
	line := func(i int) string { return strings.SplitAfter(string(text), "\n")[i] }
	without := func(i int) string { return strings.Replace(string(text), line(i), "", 1) }
	logs := string(export(t, manyLogs(t, 5)))

	longer := newJournal(t, size+1)
	kept := checkpoint(t, longer)
	stranger := open(nil)
	stranger.key.name = "stranger"
	other := open(statetest.Open(t))
	for i := range size {
		r := sample(i)
		r.Principal = "eve@local"
		if err := other.db.Write(t.Context(), func(tx state.Tx) error { _, err := other.Append(tx, r); return err }); err != nil {
			t.Fatal(err)
		}
	}
	fifth, err := j.sign(5, 3, tlog.Hash{})
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name    string
		text    string
		want    Check
		seq     int64
		problem string
	}{
		{"a record changed", strings.Replace(string(text), "call-000020", "call-000021", 1), Check{}, 20, "was changed"},
		{"a record removed", without(20), Check{}, 20, "missing"},
		{"the first record removed", without(0), Check{}, 0, "missing"},
		{"the last record removed", without(size - 1), Check{}, size - 1, "ends after 49 records"},
		{"a record repeated", strings.Replace(string(text), line(20), line(20)+line(20), 1), Check{}, 21, "appears again where record"},
		{"records swapped", strings.Replace(string(text), line(20)+line(21), line(21)+line(20), 1), Check{}, 20, "missing"},
		{"a record hidden as erased", strings.Replace(string(text), line(20), line(20)[:strings.Index(line(20), `,"record"`)]+"}\n", 1), Check{}, 20, "not a valid line of an export"},
		{"no last line", without(size), Check{}, size, "truncated"},
		{"a line after the last", string(text) + line(0), Check{}, size, "continues after its last line"},
		{"no checkpoint", strings.Replace(string(text), line(size), `{"checkpoints":[],"key":"`+j.key.String()+`"}`, 1), Check{}, 0, "no checkpoint"},
		{"only an empty last line", `{"checkpoints":[],"key":"` + j.key.String() + `"}`, Check{}, 0, "no checkpoint"},
		{"the checkpoint of a longer journal", without(size) + `{"checkpoints":[` + quote(kept) + `],"key":"` + j.key.String() + `"}`, Check{}, size, "covers 51"},
		{"an older export", string(text), Check{Checkpoints: [][]byte{kept}}, size, "the given checkpoint covers 51"},
		{"another key", string(text), Check{Key: stranger.key}, size, "cannot be used"},
		{"not JSON", "hello\n", Check{}, 0, "line 1"},
		{"an empty line", "\n", Check{}, 0, "line 1"},
		{"a line that is too long", strings.Repeat("x", lineLimit+1), Check{}, 0, "longer than"},
		{"empty", "", Check{}, 0, "truncated"},
		{"a record after the checkpoint", strings.Join(strings.SplitAfter(string(export(t, longer)), "\n")[:size+1], "") + line(size), Check{}, size, "has 51 records, but its checkpoint covers 50"},
		{"another history under a checkpoint", string(export(t, other)[:strings.LastIndex(string(export(t, other)), `{"checkpoints"`)]) + line(size), Check{}, 0, "do not match its checkpoint"},
		{"a log removed", dropLog(logs, 2), Check{}, 0, "log 2 ends after 0 records"},
		{"a log's checkpoint removed", dropCheckpoint(t, logs, 2), Check{}, 0, "log 2 has no checkpoint"},
		{"a log removed with its checkpoint", dropCheckpoint(t, dropLog(logs, 2), 2), Check{}, 0, "log 2 is missing"},
		{"a log that only a given checkpoint covers", string(text), Check{Checkpoints: [][]byte{fifth}}, 0, "log 5 is missing, but the given checkpoint"},
		{"logs in another order", dropLog(logs, 0) + logs, Check{}, 5, "log 0 comes after"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := verifyExport(t, []byte(tt.text), tt.want)
			if r.OK || r.FirstBad == nil || r.FirstBad.Seq != tt.seq || !strings.Contains(r.Problem, tt.problem) {
				t.Errorf("got report %+v at %+v, want record %d: %s", r, r.FirstBad, tt.seq, tt.problem)
			}
		})
	}
}

func quote(b []byte) string { return string(appendString(nil, string(b))) }

// dropLog removes the records of a log from an export. For log 0, it also removes the last line.
func dropLog(text string, log int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		start := `{"log":` + string(rune('0'+log)) + ","
		if !strings.HasPrefix(line, start) && (log != 0 || strings.HasPrefix(line, `{"log"`)) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// dropCheckpoint removes a log's checkpoint from the last line.
func dropCheckpoint(t *testing.T, text string, log int64) string {
	t.Helper()
	at := strings.LastIndex(text, `{"checkpoints"`)
	var last lastLine
	if err := json.Unmarshal([]byte(text[at:]), &last); err != nil {
		t.Fatal(err)
	}
	last.Checkpoints = slices.DeleteFunc(last.Checkpoints, func(note string) bool {
		c, _, err := readNote([]byte(note))
		return err == nil && c.Log == log
	})
	b, err := json.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	return text[:at] + string(b)
}

// An export of a modified store is well-formed, and its verification fails.
func TestExportOfATamperedStore(t *testing.T) {
	j := newJournal(t, 20)
	exec(t, j, `UPDATE leaves SET record = $1 WHERE place = 7`, []byte("\x00\n{\"}"))
	exec(t, j, `UPDATE leaves SET record = 'a text' WHERE place = 9`)
	text := export(t, j)
	for line := range strings.Lines(string(text)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %q", line)
		}
	}
	if r := verifyExport(t, text, Check{}); r.OK || r.FirstBad.Seq != 7 {
		t.Errorf("got report %+v", r)
	}
}

// An export with a changed bit verifies only if it still contains all signed records.
func TestExportWithAnyByteChanged(t *testing.T) {
	j := newJournal(t, 20)
	text := export(t, j)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		bad := bytes.Clone(text)
		bad[rnd.IntN(len(bad))] ^= 1 << rnd.IntN(8)
		mustBeWhole(t, bad, 20)
	}
}

// mustBeWhole checks an export that verifies with the test key. It fails the test if the export does
// not contain exactly the signed records.
func mustBeWhole(t *testing.T, text []byte, records int64) {
	t.Helper()
	r, err := VerifyExport(bytes.NewReader(text), Check{Key: open(nil).key})
	if err == nil && r.OK && (r.Records != records || r.Signed != records || r.Erased != 0) {
		t.Errorf("a changed export verifies as %+v:\n%s", r, text)
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

// Later versions must be able to read the formats that users store. The fuzz targets start from these golden
// files.
func TestGolden(t *testing.T) {
	j := newJournal(t, 4)
	older := checkpoint(t, j)
	fill(t, j, 3)
	inclusion, err := j.Prove(t.Context(), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	consistency, err := j.ProveSince(t.Context(), older)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{
		"checkpoint": older, "export.jsonl": export(t, newJournal(t, 2)), "logs.jsonl": export(t, manyLogs(t, 1)),
		"inclusion.json": indent(t, inclusion), "consistency.json": indent(t, consistency), "key": []byte(j.key.String() + "\n"),
	} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

func indent(t *testing.T, p *Proof) []byte {
	t.Helper()
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyProof(text, open(nil).key); err != nil {
		t.Errorf("after its JSON was indented, the proof does not verify: %v", err)
	}
	return append(text, '\n')
}
