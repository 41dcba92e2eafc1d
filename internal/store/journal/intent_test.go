package journal

import (
	"context"
	"errors"
	"testing"
)

func logged(id, principal string) *Intent {
	return &Intent{
		Call: id, Agent: "shop", Digest: "sha256:d", Tool: "pay", Principal: principal,
		Record: Draft(&Record{Call: id, Principal: principal}), Started: 7,
	}
}

func withMAC(t *testing.T) *Journal {
	t.Helper()
	j := noting(t, t.TempDir())
	j.SetMAC(func(content []byte) []byte { return content[:4] })
	return j
}

// After a failed post, the entries of the earlier file are posted before those of the current file.
func TestOrderAfterAFailedPost(t *testing.T) {
	j := withMAC(t)
	jot(t, j, 1)
	if err := j.postCurrent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.NoteIntent(logged("a", "ada@local")); err != nil {
		t.Fatal(err)
	}
	j.rotateWAL()
	if err := j.NoteOutcome(&Record{Time: sample(2).Time, Call: "a", Decision: Allow}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.postCurrent(ctx); err == nil {
		t.Fatal("the post did not fail")
	}
	if err := errors.Join(j.postCurrent(t.Context()), j.Post(t.Context())); err != nil {
		t.Fatal(err)
	}
	if rows := count(t, j, "calls"); rows != 0 {
		t.Errorf("%d rows remain of an answered call", rows)
	}
	sound(t, j, 2)
}

// A file whose entries another call has posted and removed is not damaged.
func TestPostOfARemovedFile(t *testing.T) {
	j := withMAC(t)
	jot(t, j, 1)
	name, size := j.posting.writer.Load().Current()
	j.rotateWAL()
	if err := errors.Join(j.Post(t.Context()), j.postFile(t.Context(), name, size, false)); err != nil {
		t.Error(err)
	}
}

// An intent becomes a row only if the log is posted before the outcome is written.
func TestIntentsInTheLog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after int // the log is posted after this many entries
	}{{"posted together", 3}, {"posted between", 1}, {"posted after a record", 2}} {
		t.Run(tt.name, func(t *testing.T) {
			j := withMAC(t)
			for i, write := range []func() error{
				func() error { return j.NoteIntent(logged("a", "ada@local")) },
				func() error { return j.Note(sample(1)) },
				func() error { return j.NoteOutcome(&Record{Time: sample(2).Time, Call: "a", Decision: Allow}) },
			} {
				if err := write(); err != nil {
					t.Fatal(err)
				}
				if i+1 == tt.after {
					if err := j.Post(t.Context()); err != nil {
						t.Fatal(err)
					}
					if rows, want := count(t, j, "calls"), int64(1-i/2); rows != want {
						t.Errorf("after %d entries, the table calls has %d rows, want %d", i+1, rows, want)
					}
				}
			}
			sound(t, j, 2)
			if rows := count(t, j, "calls"); rows != 0 {
				t.Errorf("after the outcome, the table calls has %d rows, want 0", rows)
			}
		})
	}
}

// A row that the store would refuse must not be in the log, because no later entry could be posted.
func TestIntentsThatTheLogRefuses(t *testing.T) {
	j := withMAC(t)
	sealed := logged("d", "ada@local")
	sealed.Sealed = []byte("x")
	for _, i := range []*Intent{logged("a\x00", "ada@local"), logged("b", "a\xff"), sealed} {
		if err := j.NoteIntent(i); err != ErrNotLogged {
			t.Errorf("the intent of %q was logged: %v", i.Call, err)
		}
	}
	if err := j.NoteIntent(logged("c", "ada@local")); err != nil {
		t.Fatal(err)
	}
	if err := j.Post(t.Context()); err != nil {
		t.Error(err)
	}
}
