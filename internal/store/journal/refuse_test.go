package journal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// If the directory of the write-ahead logs cannot be read, no operation reads or signs the journal.
func TestUnreadableWAL(t *testing.T) {
	j := newJournal(t, 5)
	note := checkpoint(t, j)
	dir := filepath.Join(t.TempDir(), "daybooks")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // put a file in place of the directory
		t.Fatal(err)
	}
	j.SetWALDir(dir)
	for name, do := range map[string]func(context.Context) error{
		"show": func(ctx context.Context) error { _, err := j.Show(ctx, Filter{}); return err },
		"ends": func(ctx context.Context) error { _, err := j.Ends(ctx); return err },
		"follow": func(ctx context.Context) error {
			return j.Follow(ctx, Ends{}, Filter{}, func(Entry) error { return nil })
		},
		"checkpoint":  func(ctx context.Context) error { _, err := j.Checkpoint(ctx); return err },
		"verify":      func(ctx context.Context) error { _, err := j.Verify(ctx, Check{}); return err },
		"prove since": func(ctx context.Context) error { _, err := j.ProveSince(ctx, note); return err },
		"export":      func(ctx context.Context) error { return j.Export(ctx, io.Discard) },
		"erase":       func(ctx context.Context) error { _, err := j.Erase(ctx, started.Add(time.Hour), "ada"); return err },
	} {
		if err := do(t.Context()); err == nil {
			t.Errorf("%s returned no error", name)
		}
	}
}

// narrow is a writer that fails after a number of bytes, like a full disk.
type narrow struct{ left int }

var errNoSpace = errors.New("no space left")

func (n *narrow) Write(p []byte) (int, error) {
	if n.left -= len(p); n.left < 0 {
		return 0, errNoSpace
	}
	return len(p), nil
}

// Export fails if the disk gets full, no matter at which byte.
func TestExportThatDoesNotFit(t *testing.T) {
	j := newJournal(t, 300)
	whole := export(t, j)
	for _, space := range []int{0, 64 << 10, len(whole) / 2, len(whole) - 1} {
		if err := j.Export(t.Context(), &narrow{space}); !errors.Is(err, errNoSpace) {
			t.Errorf("with space for %d of %d bytes: got error %v, want errNoSpace", space, len(whole), err)
		}
	}
	if err := j.Export(t.Context(), &narrow{len(whole)}); err != nil {
		t.Error(err)
	}
}

// Records, tiles or the head of a journal can be damaged. The journal then makes no proofs and accepts no
// records that would hide the damage.
func TestDamagedJournalRefusesRecords(t *testing.T) {
	another := func(j *Journal) error {
		return j.db.Write(context.Background(), func(tx state.Tx) error { _, err := j.Append(tx, sample(1)); return err })
	}
	for _, tt := range []struct {
		name    string
		records int
		damage  string
		do      func(*Journal) error
	}{
		{"a leaf of the tile that is completed", tileWidth - 1, `DELETE FROM leaves WHERE place = 100`, another},
		{"the tile above", 2*tileWidth - 1, `UPDATE tiles SET hashes = x'00' WHERE level = 1`, another},
		{"the tile of a proof", 2 * tileWidth, `UPDATE tiles SET hashes = x'00' WHERE level = 0`, func(j *Journal) error { _, err := j.Prove(context.Background(), 0, 3); return err }},
		{"the leaves of a proof", 20, `DELETE FROM leaves WHERE place > 10`, func(j *Journal) error { _, err := j.Prove(context.Background(), 0, 3); return err }},
		{"the record of a proof", 20, `DELETE FROM leaves WHERE place = 3`, func(j *Journal) error { _, err := j.Prove(context.Background(), 0, 3); return err }},
		{"the head", 20, `UPDATE heads SET edge = x'00'`, func(j *Journal) error { return another(open(j.db)) }},
		{"the head, when signing", 20, `UPDATE heads SET edge = x'00'`, func(j *Journal) error { _, err := open(j.db).Checkpoint(context.Background()); return err }},
		{"the head, when closing", 20, `UPDATE heads SET edge = x'00'`, func(j *Journal) error {
			k := open(j.db)
			k.written.Store(true)
			return k.Close(context.Background())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t, tt.records)
			checkpoint(t, j)
			exec(t, j, tt.damage)
			if err := tt.do(j); err == nil {
				t.Error("the operation succeeded in spite of the damage")
			}
			if r := verify(t, j); r.OK {
				t.Error("Verify accepted the damaged journal")
			}
		})
	}
}

// ProveSince fails for a checkpoint that covers more records than the journal has.
func TestProveSinceOfAShorterJournal(t *testing.T) {
	longer := newJournal(t, 30)
	note := checkpoint(t, longer)
	if _, err := newJournal(t, 20).ProveSince(t.Context(), note); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("got error %v, want an error about the shorter journal", err)
	}
	if _, err := longer.ProveSince(t.Context(), []byte("no note")); err == nil {
		t.Error("a text that is not a checkpoint was accepted")
	}
}

// A proof with any wrong part is rejected.
func TestHostileProofs(t *testing.T) {
	j := newJournal(t, 20)
	p, err := j.Prove(t.Context(), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Proof){
		"a proof without a hash":         func(p *Proof) { p.Hash = nil },
		"a proof without a record":       func(p *Proof) { p.Record = nil },
		"a proof for another log":        func(p *Proof) { p.Log = 4 },
		"a proof of an unknown kind":     func(p *Proof) { p.Proves = "innocence" },
		"a proof for another record":     func(p *Proof) { p.Seq = 4 },
		"a proof with an invalid record": func(p *Proof) { text, h := "{", tlog.RecordHash([]byte("{")); p.Record, p.Hash = &text, &h },
		"a proof without its checkpoint": func(p *Proof) { p.Checkpoint = "" },
	} {
		changed := *p
		change(&changed)
		if _, err := changed.check(j.key); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := p.check(j.key); err != nil {
		t.Errorf("the unchanged proof was rejected: %v", err)
	}
	for name, text := range map[string]string{"too long": strings.Repeat(" ", proofLimit+1), "not JSON": "{", "without a key": `{"proves":"inclusion"}`} {
		if _, err := VerifyProof([]byte(text), Key{}); err == nil {
			t.Errorf("a proof that is %s was accepted", name)
		}
	}
}

// Exports with invalid parts are rejected.
func TestHostileExports(t *testing.T) {
	j := newJournal(t, 3)
	text := string(export(t, j))
	first, rest, _ := strings.Cut(text, "\n")
	at := strings.Index(first, `"record":`)
	for name, hostile := range map[string]string{
		"a record that is not base64": first[:at] + `"record":"%%"}` + "\n" + rest,
		"an invalid key":              strings.Replace(text, j.key.String(), "invalid", 1),
		"another log first":           strings.Replace(text, `{"log":0`, `{"log":7`, 1),
	} {
		if r := verifyExport(t, []byte(hostile), Check{}); r.OK {
			t.Errorf("%s: the export was accepted", name)
		}
	}
	stranger := open(nil)
	stranger.key.name = "stranger"
	foreign, err := stranger.sign(0, 3, tlog.Hash{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := VerifyExport(strings.NewReader(text), Check{Checkpoints: [][]byte{foreign}}); err == nil && r.OK {
		t.Error("a checkpoint of another journal was accepted")
	}
}

// An attacker can forge records by writing to a write-ahead log. But forged roster records do not verify.
func TestForgedRosterRecords(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":      `"kind":"log_erased",`,
		"no log":        `"kind":"log_erased"}`,
		"another kind":  `"kind":"log_of_mine","roster":{"log":0,"size":1}}`,
		"without roots": `"kind":"log_checkpoint","roster":{"log":3,"size":9}}`,
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t, 3)
			err := j.db.Write(t.Context(), func(tx state.Tx) error { _, err := j.add(tx, [][]byte{[]byte(body)}, started); return err })
			if err != nil {
				t.Fatal(err)
			}
			if r := verify(t, j); r.OK || r.FirstBad == nil || r.FirstBad.Seq != 3 {
				t.Errorf("got report %+v", r)
			}
		})
	}
}

// Records of hostile calls have a bounded size and stay on one line.
func TestHostileRecords(t *testing.T) {
	j := open(newJournal(t, 0).db)
	long := strings.Repeat("é", maxText) // truncating at maxText would split a character
	for name, r := range map[string]*Record{
		"line breaks":       {Tool: "a\nb\r\u2028", Detail: "\x1b[31m\x00", Arguments: []byte("{\"a\":\n\r1}")},
		"arguments broken":  {Arguments: []byte("{\n")},
		"very long":         {Tool: "x" + long, Detail: long, Agent: long},
		"no time":           {},
		"some capabilities": {Capabilities: &Capabilities{Held: []string{"memory.read"}}},
	} {
		if err := j.Note(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Time.IsZero() {
			t.Errorf("%s: the record has no time", name)
		}
	}
	text := export(t, j)
	if n := bytes.Count(text, []byte("\n")); n != 6 {
		t.Errorf("the export has %d lines, want 6: 5 records and a last line", n)
	}
	if bytes.ContainsAny(text, "\x1b\x00\r") {
		t.Error("the export contains a control character")
	}
	if r := verify(t, j); !r.OK || r.Records != 5 {
		t.Errorf("got report %+v", r)
	}
}

// An entry can be corrupted before it is posted. Note then writes later entries to the store directly. In the
// end, the journal records the loss.
func TestCorruptEntry(t *testing.T) {
	dir := t.TempDir()
	j := noting(t, dir)
	jot(t, j, 3)
	name, end := j.posting.writer.Load().Current()
	path := filepath.Join(dir, "daybooks", name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[end-2] ^= 1 // corrupt the third entry
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first attempts post the intact entries; then posting fails
		j.posting.running.Add(1)
		j.posting.closed = true // start no timer
		j.postOwn()
	}
	j.posting.closed = false
	if !j.posting.stuck.Load() {
		t.Fatal("the corruption was not noticed")
	}
	jot(t, j, 4)
	if n := size(t, j); n != 2+4 {
		t.Errorf("the store has %d records, want 6: the 2 intact entries and the 4 later notes", n)
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := j.Show(t.Context(), Filter{})
	if err != nil || len(entries) != 7 || !strings.Contains(entries[0].Detail, "cannot be read") {
		t.Errorf("got %d records (error %v), want 7, of which the newest reports unreadable bytes: %+v",
			len(entries), err, entries)
	}
	sound(t, j, 7)
}
