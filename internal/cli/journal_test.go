package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// keeper writes records into the journal of a temporary home.
type keeper struct {
	t     *testing.T
	store *store.Store
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("AMBIT_HOME", dir)
	t.Setenv("NO_COLOR", "1")
	b, err := store.Open(t.Context(), home.At(dir), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &keeper{t, b}
}

func (k *keeper) write(change func(*journal.Record)) {
	k.t.Helper()
	r := journal.Record{
		Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Call: "c-1", Agent: "shop", ID: "matrix://agent/shop", Digest: "sha256:00",
		Principal: "ada@local", Tool: "list", SideEffect: "read", Decision: journal.Allow,
	}
	change(&r)
	err := k.store.DB.Write(k.t.Context(), func(tx state.Tx) error { _, err := k.store.Journal.Append(tx, &r); return err })
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeper) exec(query string, args ...any) {
	k.t.Helper()
	err := k.store.DB.Write(k.t.Context(), func(tx state.Tx) error { _, err := tx.Exec(query, args...); return err })
	if err != nil {
		k.t.Fatal(err)
	}
}

// says runs ambit, checks its exit code, and checks that its output contains every string in want.
func says(t *testing.T, code int, args []string, want ...string) string {
	t.Helper()
	var out, log bytes.Buffer
	got := cli.Run(t.Context(), args, strings.NewReader(""), &out, &log)
	all := out.String() + log.String()
	if got != code {
		t.Fatalf("ambit %s exited %d, want %d:\n%s", strings.Join(args, " "), got, code, all)
	}
	for _, w := range want {
		if !strings.Contains(all, w) {
			t.Errorf("the output of ambit %s does not contain %q:\n%s", strings.Join(args, " "), w, all)
		}
	}
	return out.String()
}

func TestJournalShow(t *testing.T) {
	k := newKeeper(t)
	k.write(func(*journal.Record) {})
	k.write(func(r *journal.Record) {
		r.Call, r.Decision, r.Code, r.Stage, r.Tool = "c-2", journal.Deny, "side_effect_denied", "gate", "wipe"
	})
	k.write(func(r *journal.Record) {
		r.Call, r.Tool, r.Principal = "c-3", "evil\x1b[2J\x1b]0;x\x07", "\u202ee\u3164ve"
	})

	local := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Local().Format("2006-01-02 15:04:05")
	text := says(t, 0, []string{"journal", "show"}, local, "side_effect_denied", "ada@local")
	for _, shown := range []string{text, says(t, 0, []string{"journal", "show", "--json"})} {
		if strings.ContainsAny(shown, "\x1b\x07\u202e\u3164") {
			t.Errorf("the output contains control or invisible characters: %q", shown)
		}
	}
	if lines := strings.Split(text, "\n"); !strings.HasPrefix(lines[0], "2 ") || !strings.HasPrefix(lines[2], "0 ") {
		t.Errorf("the newest record is not first:\n%s", text)
	}
	if says(t, 0, []string{"journal"}) != text {
		t.Error("ambit journal and ambit journal show print different texts")
	}
	says(t, 0, []string{"journal", "show", "--agent", "unknown"}, "no records")

	var doc struct{ Records []map[string]any }
	if err := json.Unmarshal([]byte(says(t, 0, []string{"journal", "show", "--json", "--decision", "deny"})), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Records) != 1 {
		t.Fatalf("got %v, want one record", doc)
	}
	for key, want := range map[string]any{
		"seq": 1.0, "log": 0.0, "time": "2026-03-01T12:00:00Z", "agent": "shop", "id": "matrix://agent/shop", "digest": "sha256:00", "principal": "ada@local",
		"tool": "wipe", "uri": "", "side_effect": "read", "decision": "deny", "code": "side_effect_denied", "stage": "gate", "call": "c-2",
	} {
		if got, ok := doc.Records[0][key]; !ok || got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}

	k.exec(`INSERT INTO calls (id, agent, tool, state, started) VALUES ('c-9', 'shop', 'pay', 'unknown', 1772366400000000)`)
	says(t, 0, []string{"journal", "show", "--unknown"}, "c-9", "unknown")
	if err := json.Unmarshal([]byte(says(t, 0, []string{"journal", "show", "--unknown", "--json"})), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Records) != 1 || doc.Records[0]["seq"] != nil || doc.Records[0]["decision"] != "unknown" {
		t.Errorf("got %v, want one unknown record without a number", doc.Records)
	}
}

func TestJournalFollow(t *testing.T) {
	k := newKeeper(t)
	k.write(func(*journal.Record) {})
	ctx, stop := context.WithCancel(t.Context())
	read, write := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(ctx, []string{"journal", "show", "--follow", "--json"}, strings.NewReader(""), write, io.Discard)
		write.Close()
	}()
	d := json.NewDecoder(read)
	for seq := range 3 {
		var r struct{ Seq int }
		if err := d.Decode(&r); err != nil || r.Seq != seq {
			t.Fatalf("record %d, want %d: %v", r.Seq, seq, err)
		}
		k.write(func(*journal.Record) {})
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestJournalVerifyAndProve(t *testing.T) {
	k := newKeeper(t)
	for i := range 10 {
		k.write(func(r *journal.Record) { r.Call = fmt.Sprint("c-", i) })
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }

	says(t, 0, []string{"journal", "checkpoint", "-o", in("kept")}, "wrote")
	k.write(func(*journal.Record) {})
	says(t, 0, []string{"journal", "verify"}, "the journal is intact: 11 records, the newest 1 not yet signed")
	says(t, 0, []string{"journal", "verify", "--checkpoint", in("kept")}, "intact")
	var report struct {
		OK       bool
		Records  int
		FirstBad *journal.Position `json:"first_bad"`
		Key      string
	}
	ask := func(code int, args ...string) {
		t.Helper()
		report.FirstBad = nil
		if err := json.Unmarshal([]byte(says(t, code, append(args, "--json"))), &report); err != nil {
			t.Fatal(err)
		}
	}
	ask(0, "journal", "verify")
	if !report.OK || report.Records != 11 || report.FirstBad != nil {
		t.Errorf("%+v", report)
	}

	says(t, 0, []string{"journal", "export", "-o", in("export")}, "wrote")
	says(t, 0, []string{"journal", "verify", in("export")}, "11 records, all signed")
	says(t, 0, []string{"journal", "verify", in("export"), "--key", report.Key, "--checkpoint", in("kept")}, "intact")
	if info, err := os.Stat(in("export")); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("other users can read the export: %v, %v", info, err)
	}
	says(t, 0, []string{"whoami"}, report.Key)
	says(t, 0, []string{"journal", "prove", "4", "-o", in("proof")})
	says(t, 0, []string{"journal", "prove", "--check", in("proof")}, "the proof is valid: record 4", "c-4")
	says(t, 0, []string{"journal", "prove", "--check", in("proof"), "--key", report.Key, "--json"}, `"ok": true`, `"key_known": true`, `"seq": 4`)
	says(t, 0, []string{"journal", "prove", "--since", in("kept"), "-o", in("since")})
	says(t, 0, []string{"journal", "prove", "--check", in("since")}, "log 0 now has 11 records, and the first 10 are the records of the older checkpoint")
	says(t, 1, []string{"journal", "prove", "99"}, "no such record")

	// Another home does not know the key.
	t.Setenv("AMBIT_HOME", in("elsewhere"))
	says(t, 1, []string{"journal", "verify", in("export")}, "does not know", report.Key)
	says(t, 1, []string{"journal", "prove", "--check", in("proof")}, "does not know")
	if _, err := os.Stat(in("elsewhere")); err == nil {
		t.Error("checking a file created a home")
	}
}

func TestJournalVerifyNamesChangedRecord(t *testing.T) {
	k := newKeeper(t)
	for range 10 {
		k.write(func(*journal.Record) {})
	}
	dir := t.TempDir()
	kept, export := filepath.Join(dir, "kept"), filepath.Join(dir, "export")
	says(t, 0, []string{"journal", "checkpoint", "-o", kept})
	says(t, 0, []string{"journal", "export", "-o", export})
	text, err := os.ReadFile(export)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(export, bytes.Replace(text, []byte("ada@local"), []byte("eve@local"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, 1, []string{"journal", "verify", export}, "record 0 of log 0 was changed", "the first bad record is record 0 of log 0")

	k.exec(`DELETE FROM leaves WHERE place = 6`)
	says(t, 1, []string{"journal", "verify"}, "record 6 of log 0 is missing", "the first bad record is record 6 of log 0")
	out := says(t, 1, []string{"journal", "verify", "--json"})
	var doc struct {
		OK       bool
		FirstBad journal.Position `json:"first_bad"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.OK || doc.FirstBad.Seq != 6 {
		t.Errorf("%s: %v", out, err)
	}
	says(t, 1, []string{"journal", "prove", "6"}, "there is no proof")

	// In another home, the checkpoint does not belong to the journal.
	t.Setenv("AMBIT_HOME", filepath.Join(dir, "other"))
	says(t, 3, []string{"journal", "verify", "--checkpoint", kept}, "there is no store in ")
	says(t, 0, []string{"whoami"}) // ambit whoami creates the root key, but no store
	says(t, 3, []string{"journal", "verify", "--checkpoint", kept}, "there is no store in ")
	says(t, 0, []string{"memory", "list", "gone@local"}) // creates the store
	says(t, 1, []string{"journal", "verify", "--checkpoint", kept}, "not signed by this journal's key")
}
