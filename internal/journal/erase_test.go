package journal

import (
	"bytes"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/state"
	"github.com/ambit-run/ambit/internal/state/statetest"
)

func TestEraseIsToldAndProven(t *testing.T) {
	statetest.Each(t, func(t *testing.T, opened func() state.DB) {
		j := open(opened())
		fill(t, j, 600)
		n, err := j.Erase(t.Context(), started.Add(250*time.Second), "ada@local")
		if err != nil || n != 250 {
			t.Fatalf("%d erased, error %v", n, err)
		}
		r, err := j.Verify(t.Context(), Check{})
		if err != nil || !r.OK || r.Erased != 250 {
			t.Fatalf("%+v, error %v", r, err)
		}
		// Again, a little further, and nothing is left to do after that.
		for _, want := range []int64{50, 0} {
			if n, err = j.Erase(t.Context(), started.Add(300*time.Second), "ada@local"); err != nil || n != want {
				t.Errorf("%d erased, error %v", n, err)
			}
		}
		if p, err := j.Prove(t.Context(), j.db.Log(), 400); err != nil || p.Erased {
			t.Errorf("a later record cannot be proven: %v", err)
		}
		var out bytes.Buffer
		if err := j.Export(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if r := verifyExport(t, out.Bytes(), Check{}); !r.OK || r.Erased != 300 {
			t.Errorf("the export: %+v", r)
		}
		// What the journal does not tell of is a fault.
		err = j.db.Write(t.Context(), func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE leaves SET record = NULL WHERE place = $1`, place(j.db.Log(), 450))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err = j.Verify(t.Context(), Check{})
		if err != nil || r.OK || r.FirstBad == nil || r.FirstBad.Seq != 450 {
			t.Errorf("%+v, error %v", r, err)
		}
		if r, err := j.Verify(t.Context(), Check{Erased: true}); err != nil || !r.OK {
			t.Errorf("with every erasure accepted: %+v, error %v", r, err)
		}
	})
}

// The record of an erasure stays when what is around it goes.
func TestErasuresAreNotErased(t *testing.T) {
	j := newJournal(t, 10)
	for i := range 3 {
		if _, err := j.Erase(t.Context(), started.Add(time.Duration(i+1)*3*time.Second), "ada@local"); err != nil {
			t.Fatal(err)
		}
		fill(t, j, 2)
	}
	if _, err := j.Erase(t.Context(), started.Add(time.Hour), "ada@local"); err != nil {
		t.Fatal(err)
	}
	r, err := j.Verify(t.Context(), Check{})
	if err != nil || !r.OK || r.Records != 10+6+4 || r.Erased != 16 {
		t.Errorf("%+v, error %v", r, err)
	}
}
