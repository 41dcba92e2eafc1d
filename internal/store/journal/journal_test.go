package journal

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// Every field of a record survives encoding and decoding, including fields that are added to Record later.
func TestRecordComesBackWhole(t *testing.T) {
	want := Record{
		Time: started.Add(123456 * time.Microsecond), Arguments: json.RawMessage(`{"a":[1,2.50,"ü\n"]}`),
		Capabilities: &Capabilities{Required: []string{"a", "b"}, Optional: []string{"c"}, Held: []string{"a", "b"}},
		Contacted:    []string{"a.test:443", "\x1b\"\n:1"},
		Refused:      []Denial{{Kind: "connect", What: "10.0.0.1:5432", Private: true}, {Kind: "execute", What: "/bin/\"\n\x00"}},
		Origins:      []Origin{{Argument: "/a\"\n", Reason: "named", Call: "c", ValueMAC: "0f"}, {Reason: "asked_for"}},
	}
	v := reflect.ValueOf(&want).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case name == "Kind" || name == "Roster" || name == "Handover" || name == "Erasure" || !f.IsZero():
		case f.Kind() == reflect.String:
			f.SetString(name + " \"\\\n\x00\x1b[31mü\u2028")
		case f.CanInt():
			f.SetInt(int64(i + 1))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		default:
			t.Fatalf("this test cannot set the field %s", name)
		}
	}
	var got Record
	if err := json.Unmarshal(appendRecord(nil, &want), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	root := tlog.RecordHash([]byte("x"))
	roster := Record{
		Seq: 4, Kind: kindCheckpoint, Time: started, Roster: &Roster{Log: 2, Size: 9, Root: &root},
		Handover: &Handover{Log: 2, Size: 9, Root: root, Old: "a", New: "b", ByOld: []byte{1}, ByNew: []byte{2}},
		Erasure:  &Erasure{Key: "a", By: []byte{3}},
	}
	var back Record
	if err := json.Unmarshal(appendRecord(nil, &roster), &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, roster) {
		t.Errorf("got %+v, want %+v", back, roster)
	}
}

func TestRecordIsBoundedAndOneLine(t *testing.T) {
	for _, tt := range []struct {
		name string
		rec  Record
		want string
	}{
		{"long text is truncated", Record{Detail: strings.Repeat("ü", maxText)}, `ü…"`},
		{"large arguments are left out", Record{Arguments: json.RawMessage(`"` + strings.Repeat("x", maxArguments) + `"`), ArgumentsSize: 9}, `"decision":"","arguments_size":9`},
		{"arguments on one line", Record{Arguments: json.RawMessage("{\n\"a\": 1.0,\r\n\"b\": \"\\n\"}")}, `"arguments":{"a":1.0,"b":"\n"}`},
		{"arguments that are not JSON become a string", Record{Arguments: json.RawMessage(`{"a":`)}, `"arguments":"{\"a\":"`},
		{"many refusals", Record{
			Contacted: slices.Repeat([]string{strings.Repeat("x", MaxRecord)}, 2*maxActions),
			Refused:   slices.Repeat([]Denial{{Kind: "execute", What: strings.Repeat("\n", MaxRecord)}}, 2*maxActions),
		}, `"refused":[{"kind":"execute"`},
		{"many origins", Record{
			Origins: slices.Repeat([]Origin{{Argument: strings.Repeat("\x00", MaxRecord), Reason: "named", Call: "c"}}, 2*maxActions),
		}, `"origins":[{"reason":"named"`},
		{"bytes that are not UTF-8", Record{Tool: "a\xffb"}, "\"tool\":\"a\ufffdb\""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := appendRecord(nil, &tt.rec)
			if !json.Valid(b) || len(b) > MaxRecord || strings.ContainsAny(string(b), "\r\n") || !strings.Contains(string(b), tt.want) {
				t.Errorf("got a record of %d bytes: %.300s", len(b), b)
			}
		})
	}
}

// The tree is equal to the tree of package tlog. The tests of tlog compare its tree with RFC 6962.
func TestTreeIsThatOfTlog(t *testing.T) {
	const n = 700
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	j := newJournal(t, n)
	rows := 0
	err := j.db.Read(t.Context(), func(tx state.Tx) error {
		stored, rows = nil, 0
		return readRows(tx, 0, 0, n, func(r row) error {
			hashes, err := tlog.StoredHashes(r.seq, r.record, reader)
			stored = append(stored, hashes...)
			rows++
			return err
		})
	})
	if err != nil || rows != n {
		t.Fatalf("reading the log returned %d records (error %v)", rows, err)
	}
	want, err := tlog.TreeHash(n, reader)
	if err != nil {
		t.Fatal(err)
	}
	got, err := j.key.Open(checkpoint(t, j))
	if err != nil {
		t.Fatal(err)
	}
	if got.Root != want || got.Size != n {
		t.Errorf("got a checkpoint with size %d and root %v, want %d and %v", got.Size, got.Root, n, want)
	}
	err = j.db.Read(t.Context(), func(tx state.Tx) error {
		nodes := newNodeReader(tx, 0)
		for i := range stored {
			h, err := nodes.ReadHashes([]int64{int64(i)})
			if err != nil {
				return err
			}
			if h[0] != stored[i] {
				t.Fatalf("node %d differs", i)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUndoneAppendLeavesNothing(t *testing.T) {
	j := open(statetest.Open(t))
	undo := errors.New("undo")
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		for i := range 300 {
			if _, err := j.Append(tx, sample(i)); err != nil {
				return err
			}
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	if r := verify(t, j); !r.OK || r.Records != 0 {
		t.Errorf("got report %+v", r)
	}
	fill(t, j, 5) // the first record gets a checkpoint although the process made one before
	if r := verify(t, j); !r.OK || r.Records != 5 {
		t.Errorf("got report %+v", r)
	}
}

// The same store is opened several times, and several callers append records through each opening at the same time.
// With SQLite they share one log; with PostgreSQL each has its own log, and all logs begin at the same moment.
func TestManyOpenings(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		const openings, callers, each = 4, 4, 40
		var wg sync.WaitGroup
		var journals []*Journal
		logs := map[int64]bool{}
		for range openings {
			j := New(open(), testKey, "test")
			journals = append(journals, j)
			logs[j.db.Log()] = true
		}
		for _, j := range journals {
			for range callers {
				wg.Go(func() {
					for i := range each {
						err := j.db.Write(t.Context(), func(tx state.Tx) error { _, err := j.Append(tx, sample(i)); return err })
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Go(func() {
				if _, err := j.Checkpoint(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, j := range journals {
			if err := j.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r := verify(t, journals[0], checkpoint(t, journals[3]))
		if !r.OK || r.Records < openings*callers*each || r.Signed != r.Records {
			t.Errorf("got report %+v", r)
		}
		logs[0] = true
		if r.Logs != len(logs) {
			t.Errorf("got %d logs, want %d", r.Logs, len(logs))
		}
		calls := show(t, journals[0], Filter{Limit: 10_000})
		if len(calls) != openings*callers*each {
			t.Errorf("Show returned %d calls", len(calls))
		}
		if report := verifyExport(t, export(t, journals[1]), Check{}); !report.OK {
			t.Errorf("got report %+v", report)
		}
	})
}

func TestCheckpointsComeByThemselves(t *testing.T) {
	j := open(statetest.Open(t))
	now := started
	j.now = func() time.Time { return now }
	sizes := func() (out []int64) {
		t.Helper()
		err := j.db.Read(t.Context(), func(tx state.Tx) error {
			out = nil
			return tx.Query(`SELECT size FROM checkpoints WHERE log = $1 ORDER BY size`, []any{int64(0)}, func(r state.Row) error {
				var n int64
				err := r.Scan(&n)
				out = append(out, n)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	step := func(what string, want ...int64) {
		t.Helper()
		if got := sizes(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got checkpoints at the sizes %v, want %v", what, got, want)
		}
	}
	fill(t, j, 1)
	step("first record", 1)
	fill(t, j, 7)
	step("within the same minute", 1)
	now = now.Add(checkpointInterval)
	fill(t, j, 2)
	step("first record after a minute", 1, 9)
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	step("Close replaces the checkpoint of the same minute", 1, 10)
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	step("second Close without new records", 1, 10)
	fill(t, j, stride)
	checkpoint(t, j)
	step("multiple of stride", 1, stride, stride+10)
}

// Log 0 also gets a checkpoint at every stride, even if enroll appends the records.
func TestRosterIsSignedAtEveryStride(t *testing.T) {
	j := open(asLog{statetest.Open(t), 1})
	fill(t, j, 1)
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		for range stride {
			if err := j.enroll(tx, &Record{Kind: kindBorn, Time: started, Roster: &Roster{Log: 1}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := verify(t, j); !r.OK || r.Signed != stride+1 {
		t.Errorf("got report %+v", r)
	}
}

// An append fails if the appender expects a different head of the log.
func TestAppendBehindAnotherHead(t *testing.T) {
	j := newJournal(t, 5)
	err := j.db.Write(t.Context(), func(tx state.Tx) error {
		var a appender
		if err := a.open(tx, 0); err != nil {
			return err
		}
		a.edge.add(tlog.Hash{})
		return a.append(tx, 0, [][]byte{appendBody(nil, sample(6))})
	})
	if err == nil {
		t.Error("the append succeeded")
	}
	if r := verify(t, j); !r.OK || r.Records != 5 {
		t.Errorf("got report %+v", r)
	}
}

func TestCloseOfAnUnusedJournalDoesNothing(t *testing.T) {
	j := open(statetest.Open(t))
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, j); !r.OK || r.Records != 0 {
		t.Errorf("got report %+v", r)
	}
}

// Several processes append a random number of records. The proofs for random records and sizes verify, and no
// changed proof does.
func TestProofsOfRandomPairs(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	db := statetest.Open(t)
	var owners []*Journal
	for log := range int64(3) {
		owners = append(owners, open(asLog{db, log + 1}))
	}
	var older [][]byte
	for range 12 {
		fill(t, owners[rnd.IntN(len(owners))], 1+rnd.IntN(200))
		older = append(older, checkpoint(t, owners[0]))
	}
	j := owners[0]
	if r := verify(t, j, older...); !r.OK {
		t.Fatalf("got report %+v", r)
	}
	ends, err := j.Ends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for log, size := range ends {
		for range 10 {
			seq := rnd.Int64N(size)
			p, err := j.Prove(t.Context(), log, seq)
			if err != nil {
				t.Fatalf("proving record %d of log %d failed: %v", seq, log, err)
			}
			proven := mutate(t, rnd, p)
			if proven.Entry.Seq != seq || proven.Entry.Log != log {
				t.Errorf("the proof is for record %d of log %d, want record %d of log %d", proven.Entry.Seq, proven.Log, seq, log)
			}
		}
	}
	for _, old := range older {
		p, err := j.ProveSince(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		if proven := mutate(t, rnd, p); proven.Older == 0 || proven.Older > proven.Size {
			t.Errorf("the proof has invalid sizes: %+v", proven)
		}
	}
}

// mutate checks a proof, and checks that the proof fails if a bit is changed.
func mutate(t *testing.T, rnd *rand.Rand, p *Proof) *Proven {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	proven, err := VerifyProof(text, open(nil).key)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		bad := []byte(string(text))
		i := rnd.IntN(len(bad))
		bad[i] ^= 1 << rnd.IntN(7)
		got, err := VerifyProof(bad, open(nil).key)
		if err != nil {
			continue
		}
		// A changed bit can produce equivalent JSON. It can also change only the key in the proof, which
		// this test does not use.
		if !reflect.DeepEqual(got, proven) {
			t.Errorf("with byte %d changed, the proof proves %+v, want %+v:\n%s", i, got, proven, bad)
		}
	}
	return proven
}

func TestProveRefuses(t *testing.T) {
	j := newJournal(t, 300)
	for _, at := range []Position{{0, -1}, {0, 300}, {1, 0}} {
		if _, err := j.Prove(t.Context(), at.Log, at.Seq); !errors.Is(err, ErrNoRecord) {
			t.Errorf("proving %+v: got error %v, want ErrNoRecord", at, err)
		}
	}
	other := open(nil)
	other.key.name = "other"
	note, err := other.sign(0, 5, tlog.Hash{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.ProveSince(t.Context(), note); err == nil {
		t.Error("ProveSince accepted a checkpoint of another journal")
	}
	if note, err = j.sign(0, 5, tlog.Hash{}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.ProveSince(t.Context(), note); !errors.Is(err, errUnprovable) {
		t.Errorf("a checkpoint with another root: got error %v, want errUnprovable", err)
	}
	exec(t, j, `UPDATE leaves SET record = $1 WHERE place = 7`, []byte(`{}`))
	if _, err := j.Prove(t.Context(), 0, 7); !errors.Is(err, errUnprovable) {
		t.Errorf("a changed record: got error %v, want errUnprovable", err)
	}
}

func TestProveAnErasedRecord(t *testing.T) {
	j := newJournal(t, 20)
	exec(t, j, `UPDATE leaves SET record = NULL WHERE place = 7`)
	p, err := j.Prove(t.Context(), 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(p)
	proven, err := VerifyProof(text, j.key)
	if err != nil || !proven.Entry.Erased {
		t.Errorf("got proof %+v, %v", proven, err)
	}
}

// A proof is valid only with its exact path, and only for its own record.
func TestProofNeedsItsPath(t *testing.T) {
	j := newJournal(t, 300)
	checkpoint(t, j)
	p, err := j.Prove(t.Context(), 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, p Proof) {
		t.Helper()
		if proven, err := p.check(j.key); err == nil {
			t.Errorf("%s: the proof was accepted and proves %+v", what, proven)
		}
	}
	for i := range p.Path {
		bad := *p
		bad.Path = slices.Clone(p.Path)
		bad.Path[i][5] ^= 1
		refused("a bit of the path changed", bad)
	}
	bad := *p
	bad.Path = p.Path[1:]
	refused("the path cut short", bad)
	forged := strings.Replace(*p.Record, "ada", "eve", 1)
	hash := tlog.RecordHash([]byte(forged))
	bad = *p
	bad.Record, bad.Hash = &forged, &hash
	refused("another record", bad)
	bad = *p
	bad.Seq = 8
	refused("another position", bad)
}

// A proof must not combine data from two logs.
func TestProofOfAnotherLog(t *testing.T) {
	j := newJournal(t, 20)
	exec(t, j, `UPDATE leaves SET record = NULL WHERE place = 7`)
	inclusion, err := j.Prove(t.Context(), 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	inclusion.Log = 1
	consistency, err := j.ProveSince(t.Context(), checkpoint(t, j))
	if err != nil {
		t.Fatal(err)
	}
	nothing, err := j.sign(1, 0, (&edge{}).root())
	if err != nil {
		t.Fatal(err)
	}
	consistency.Older = string(nothing)
	for _, p := range []*Proof{inclusion, consistency} {
		if proven, err := p.check(j.key); err == nil {
			t.Errorf("a proof of two logs was accepted: %+v", proven)
		}
	}
}

func TestParseKey(t *testing.T) {
	plus := false
	for i := range byte(64) { // with this many keys, the base64 of one contains a plus sign
		seed := [ed25519.SeedSize]byte{i}
		want := New(nil, ed25519.NewKeyFromSeed(seed[:]), "test").Key()
		got, err := ParseKey(want.String() + "\n")
		if err != nil || !got.Equal(want) {
			t.Errorf("ParseKey returned %v, %v; want %v", got, err, want)
		}
		plus = plus || strings.Count(want.String(), "+") > 2
	}
	if !plus {
		t.Error("no key contains a plus sign")
	}
	key := open(nil).key.String()
	for _, bad := range []string{"", "a", "test+00000000+" + strings.Repeat("A", 44), strings.Replace(key, "test", "best", 1)} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("ParseKey accepted %q", bad)
		}
	}
}

// A transaction is rolled back, and another process appends. The journal then forgets its remembered end of
// the log.
func TestAppendAfterRollback(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	a, b := open(statetest.At(t, file)), open(statetest.At(t, file))
	fill(t, a, 5)
	undone := errors.New("undone")
	err := a.db.Write(t.Context(), func(tx state.Tx) error {
		_, err := a.Append(tx, sample(5))
		return errors.Join(err, undone)
	})
	if err == nil || err.Error() != undone.Error() {
		t.Fatal(err)
	}
	fill(t, b, 1)
	fill(t, a, 3)
	fill(t, b, 3)
	if r := verify(t, a); !r.OK || r.Records != 12 {
		t.Errorf("got report %+v", r)
	}
}
