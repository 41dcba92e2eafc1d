package words

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

func of(records ...string) *Set {
	var s Set
	for _, r := range records {
		s.Record([]byte(r))
	}
	return &s
}

func TestMay(t *testing.T) {
	row := of(`{"tool":"list","call":"1","agent":"a"}`, `{"tool":"get","call":"2","id":"a","uri":"x"}`).Keep()
	for _, tt := range []struct {
		kind  Kind
		value string
		want  bool
	}{
		{Tool, `"list"`, true},
		{Tool, `"get"`, true},
		{Tool, `"x"`, true},
		{Call, `"1"`, true},
		{Agent, `"a"`, true},
		{Tool, `"put"`, false},
		{Agent, `"list"`, false},
		{Call, `"3"`, false},
		{Principal, `"a"`, false},
	} {
		if got := row.May([]Sum{Of(tt.kind, []byte(tt.value))}); got != tt.want {
			t.Errorf("%d %s: %v", tt.kind, tt.value, got)
		}
	}
	if !row.May(nil) || row.May([]Sum{Of(Tool, []byte(`"list"`)), Of(Tool, []byte(`"put"`))}) {
		t.Error("all of them, and nothing else, have to be there")
	}
}

func TestRowsAboveLeaveOutCalls(t *testing.T) {
	low := of(`{"tool":"list","call":"1"}`)
	var byRow, bySet Set
	byRow.Row(low.Keep())
	bySet.Add(low)
	for name, s := range map[string]*Set{"row": &byRow, "set": &bySet} {
		row := s.Keep()
		if !row.May([]Sum{Of(Tool, []byte(`"list"`))}) || row.May([]Sum{Of(Call, []byte(`"1"`))}) {
			t.Errorf("%s: %v", name, row)
		}
	}
}

func TestWhatCannotBeReadMayHoldAnything(t *testing.T) {
	never := []Sum{Of(Tool, []byte(`"never"`))}
	for _, text := range []string{``, `{`, `{}`, `[]`, `{"tool"}`, `{"tool":}`, `{"tool":"x"`, `{"tool":"x"} `, `{ "tool":"x"}`, `{"tool":"x",}`, `{"tool":"x\"}`, `{"a":[1}`} {
		s := of(text)
		if !s.Keep().May(never) {
			t.Errorf("%s was taken for a record", text)
		}
		if (Row{}).Covers(s) {
			t.Errorf("%s is covered by nothing", text)
		}
		var up Set
		up.Add(s)
		if !up.Keep().May(never) {
			t.Errorf("%s is forgotten above", text)
		}
	}
	if !(Row{1, 2, 3}).May(never) {
		t.Error("a row that is no row excludes something")
	}
}

func TestCovers(t *testing.T) {
	s := of(`{"tool":"list","call":"1"}`, `{"tool":"get","call":"2"}`)
	row := s.Keep()
	more := of(`{"tool":"list","call":"1"}`, `{"tool":"get","call":"2"}`, `{"tool":"put"}`).Keep()
	if !row.Covers(s) || !more.Covers(s) || !Anything.Covers(s) || row[4:].Covers(s) || row[:len(row)-4].Covers(s) || (Row{}).Covers(s) {
		t.Errorf("%v", row)
	}
}

// FuzzRecord compares the reader with encoding/json: what it takes for a record has
// every word that json finds in it.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"tool":"x","a":[1,{"b":"}"}],"call":"\\"}`))
	f.Add([]byte(`{"tool":"\\\"","agent":"é"}`))
	f.Add([]byte(`{"tool":`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := of(string(text))
		row := s.Keep()
		if !row.Covers(s) {
			t.Fatal("a row does not cover its set")
		}
		var doc map[string]json.RawMessage
		if s.any || json.Unmarshal(text, &doc) != nil {
			return
		}
		for key, value := range doc {
			_, k := member(fmt.Appendf(nil, "%q", key))
			if which, _ := member(fmt.Appendf(nil, "%q", key)); which < 0 || !bytes.Contains(text, fmt.Appendf(nil, "%q:", key)) {
				continue
			}
			if !row.May([]Sum{Of(k, value)}) {
				t.Errorf("%s: %s is missing", text, key)
			}
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	record := []byte(`{"log":0,"seq":1234567,"time":"2026-03-01T12:00:00Z","call":"0123456789abcdef0123456789abcdef","agent":"shop","id":"matrix://agent/shop","digest":"sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef","principal":"ada@local","tool":"list","uri":"matrix://tool/mcp/fs/list@1.0.0","side_effect":"read","decision":"allow","arguments":{"path":"/srv/data","depth":3},"arguments_size":30,"result_size":512,"duration_us":1234}`)
	var s Set
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%256 == 0 {
			s.Keep()
			s.Reset()
		}
		s.Record(record)
	}
}
