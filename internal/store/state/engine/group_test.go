package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ambit-run/ambit/internal/store/state"
)

// fake is a batch that calls a function of the test when it ends. A member's function that returns errFatal makes the
// whole batch fail.
type fake struct {
	ends func(members int) error
	lost error
}

func (f *fake) Do(_ context.Context, g func(state.Tx) error) error {
	err := g(nil)
	if errors.Is(err, errFatal) {
		f.lost = err
	}
	return err
}
func (f *fake) Lost() error           { return f.lost }
func (f *fake) End(members int) error { return f.ends(members) }

var errFatal = errors.New("fatal")

// crowd makes n members wait for one batch and returns their errors.
func crowd(t *testing.T, n int, ends func(members int) error, f func(i int) error) (errs []error) {
	t.Helper()
	errs = make([]error, n)
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan bool)
		g := New(func() (Batch, error) {
			<-gate
			return &fake{ends: ends}, nil
		}, nil)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				errs[i] = g.Write(t.Context(), func(state.Tx) error { return f(i) })
			})
			synctest.Wait() // return when the member waits
		}
		close(gate)
		wg.Wait()
		<-g.Close()
	})
	return errs
}

func TestWaitingMembersAreCommittedTogether(t *testing.T) {
	var sizes []int
	errs := crowd(t, maxMembers+6, func(n int) error { sizes = append(sizes, n); return nil }, func(i int) error {
		if i == 3 {
			return errors.New("this member fails")
		}
		return nil
	})
	for i, err := range errs {
		if (err != nil) != (i == 3) {
			t.Errorf("member %d got the error %v, want an error only for member 3", i, err)
		}
	}
	if !slices.Equal(sizes, []int{maxMembers - 1, 6}) {
		t.Errorf("the batches have %v members, want %d and 6", sizes, maxMembers-1)
	}
}

func TestErrorOfTheCommitMeetsAll(t *testing.T) {
	errs := crowd(t, 5, func(int) error { return errFatal }, func(int) error { return nil })
	for i, err := range errs {
		if !errors.Is(err, errFatal) {
			t.Errorf("member %d got the error %v, want the error of the commit", i, err)
		}
	}
}

func TestLostBatchAffectsNoOtherMember(t *testing.T) {
	batches := 0
	errs := crowd(t, 4, func(int) error {
		if batches++; batches == 1 {
			return errFatal
		}
		return nil
	}, func(i int) error {
		if i == 1 {
			return errFatal
		}
		return nil
	})
	for i, err := range errs {
		if want := i <= 1; errors.Is(err, errFatal) != want {
			t.Errorf("member %d got the error %v, want errFatal only for the members 0 and 1", i, err)
		}
	}
}

func TestMembersThatMetRunAgain(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int
		want     error
	}{{"finally succeeds", maxRuns - 1, nil}, {"always conflicts", maxRuns, ErrAgain}} {
		t.Run(c.name, func(t *testing.T) {
			runs := 0
			errs := crowd(t, 1, func(int) error {
				if runs <= c.failures {
					return fmt.Errorf("conflict: %w", ErrAgain)
				}
				return nil
			}, func(int) error { runs++; return nil })
			if !errors.Is(errs[0], c.want) || runs != maxRuns {
				t.Errorf("the function ran %d times, want %d; error %v", runs, maxRuns, errs[0])
			}
		})
	}
}

func TestMemberLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan bool)
		sizes := []int{}
		g := New(func() (Batch, error) {
			<-gate
			return &fake{ends: func(n int) error { sizes = append(sizes, n); return nil }}, nil
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() {
			left <- g.Write(ctx, func(state.Tx) error { t.Error("the function of a member that left or was refused ran"); return nil })
		}()
		synctest.Wait()
		go func() { stayed <- g.Write(t.Context(), func(state.Tx) error { return nil }) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the canceled member got the error %v, want context.Canceled", err)
		}
		close(gate)
		if err := <-stayed; err != nil {
			t.Errorf("the other member got the error %v, want none", err)
		}
		<-g.Close()
		if !slices.Equal(sizes, []int{1}) {
			t.Errorf("the batches have %v members, want one batch with 1 member", sizes)
		}
	})
}

func TestBatchThatDoesNotBeginFailsAll(t *testing.T) {
	fail := true
	g := New(func() (Batch, error) {
		if fail {
			return nil, errFatal
		}
		return &fake{ends: func(int) error { return nil }}, nil
	}, nil)
	f := func(state.Tx) error { return nil }
	if err := g.Write(t.Context(), f); !errors.Is(err, errFatal) {
		t.Errorf("Write returned the error %v, want errFatal", err)
	}
	fail = false
	if err := g.Write(t.Context(), f); err != nil {
		t.Errorf("Write returned the error %v, want none", err)
	}
	<-g.Close()
	if err := g.Write(t.Context(), f); !errors.Is(err, state.ErrClosed) {
		t.Errorf("Write returned the error %v, want ErrClosed", err)
	}
}

// alone returns a group. Its batches begin without waiting while the function free returns true.
func alone(sizes *[]int, free func() bool) *Group {
	begin := func() (Batch, error) {
		return &fake{ends: func(n int) error { *sizes = append(*sizes, n); return nil }}, nil
	}
	return New(begin, func() (Batch, error) {
		if !free() {
			return nil, nil
		}
		return begin()
	})
}

func TestFirstMemberLeadsTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		g := alone(&sizes, func() bool { return true })
		gate := make(chan bool)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := g.Write(t.Context(), func(state.Tx) error { <-gate; return errors.New("this member fails") }); err == nil {
				t.Error("Write did not return the error of the function")
			}
		})
		synctest.Wait()
		for range maxMembers + 5 {
			wg.Go(func() {
				if err := g.Write(t.Context(), func(state.Tx) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if !slices.Equal(sizes, []int{maxMembers - 1, 6}) {
			t.Errorf("the batches have %v members, want %d and 6", sizes, maxMembers-1)
		}
		<-g.Close()
	})
}

func TestWaitingIsForTheCommittingGoroutine(t *testing.T) {
	var sizes []int
	g := alone(&sizes, func() bool { return false })
	if err := g.Write(t.Context(), func(state.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	<-g.Close()
	if !slices.Equal(sizes, []int{1}) {
		t.Errorf("the batches have %v members, want one batch with 1 member", sizes)
	}
}

func TestTryThatFails(t *testing.T) {
	g := New(nil, func() (Batch, error) { return nil, errFatal })
	for range 2 {
		if err := g.Write(t.Context(), func(state.Tx) error { return nil }); !errors.Is(err, errFatal) {
			t.Errorf("Write returned the error %v, want errFatal", err)
		}
	}
	<-g.Close()
}

// A panic or Goexit of the leader affects no other member.
func TestLeaderMayPanic(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("x") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sizes []int
				g := alone(&sizes, func() bool { return true })
				gate, others := make(chan bool), make(chan error, 2)
				go func() {
					defer func() { _ = recover() }()
					_ = g.Write(t.Context(), func(state.Tx) error { <-gate; end(); return nil })
				}()
				synctest.Wait()
				for range 2 {
					go func() { others <- g.Write(t.Context(), func(state.Tx) error { return nil }) }()
				}
				synctest.Wait()
				close(gate)
				for range 2 {
					if err := <-others; err != nil {
						t.Error(err)
					}
				}
				<-g.Close()
				if !slices.Equal(sizes, []int{0, 2}) {
					t.Errorf("the batches have %v members, want 0 and 2", sizes)
				}
			})
		})
	}
}

func TestLeavingMemberHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		g := alone(&sizes, func() bool { return true })
		gate := make(chan bool)
		var wg sync.WaitGroup
		for range 300 {
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() { _ = g.Write(ctx, func(state.Tx) error { <-gate; return nil }) })
			wg.Go(cancel)
		}
		close(gate)
		wg.Wait()
		if err := g.Write(t.Context(), func(state.Tx) error { return nil }); err != nil {
			t.Error(err)
		}
		<-g.Close()
	})
}

// Fail refuses the members that wait for a batch to begin. A member that arrives later joins the batch.
func TestWaitingMembersMayBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, sizes := make(chan bool), []int{}
		g := New(func() (Batch, error) {
			<-gate
			return &fake{ends: func(n int) error { sizes = append(sizes, n); return nil }}, nil
		}, nil)
		refused := make(chan error, 3)
		for range 3 {
			go func() {
				refused <- g.Write(t.Context(), func(state.Tx) error { t.Error("the function of a member that left or was refused ran"); return nil })
			}()
		}
		synctest.Wait()
		g.Fail(errFatal)
		for range 3 {
			if err := <-refused; !errors.Is(err, errFatal) {
				t.Errorf("Write returned the error %v, want errFatal", err)
			}
		}
		late := make(chan error, 1)
		go func() { late <- g.Write(t.Context(), func(state.Tx) error { return nil }) }()
		synctest.Wait()
		close(gate)
		if err := <-late; err != nil {
			t.Errorf("Write returned the error %v, want none", err)
		}
		<-g.Close()
		if !slices.Equal(sizes, []int{1}) {
			t.Errorf("the batches have %v members, want one batch with 1 member", sizes)
		}
	})
}
