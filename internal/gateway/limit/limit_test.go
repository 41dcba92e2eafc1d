package limit

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

var errRefused = errors.New("refused")

// take calls Take in a transaction that a refusal rolls back, as the gateway does.
func take(t testing.TB, db state.DB, m Meter) *call.Refusal {
	t.Helper()
	var stopped *call.Refusal
	err := db.Write(context.Background(), func(tx state.Tx) (err error) {
		if stopped, err = Take(tx, m); stopped != nil {
			return errRefused
		}
		return err
	})
	if err != nil && !errors.Is(err, errRefused) {
		t.Error(err)
	}
	return stopped
}

func look(t testing.TB, db state.DB, m Meter) *call.Refusal {
	t.Helper()
	var stopped *call.Refusal
	if err := db.Read(context.Background(), func(tx state.Tx) (err error) {
		stopped, err = Look(tx, m)
		return err
	}); err != nil {
		t.Error(err)
	}
	return stopped
}

func TestRateIsASlidingWindow(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		rate := &agent.Rate{Count: 3, Per: time.Minute}
		n := 0
		try := func(seconds float64) bool {
			n++
			m := Meter{Agent: "a", Tool: "t", Call: fmt.Sprint(n), At: noon.Add(time.Duration(seconds * 1e9)), Rate: rate}
			looked := look(t, db, m)
			stopped := take(t, db, m)
			if (looked == nil) != (stopped == nil) {
				t.Errorf("at %v: Look returned %v, Take returned %v", seconds, looked, stopped)
			}
			if stopped != nil && (stopped.Code != call.RateLimited || !stopped.Retryable || stopped.RetryAfter <= 0) {
				t.Errorf("at %v: got the refusal %+v", seconds, stopped)
			}
			return stopped == nil
		}
		for _, tt := range []struct {
			at   float64
			pass bool
		}{
			{0, true},
			{30, true},
			{59, true},
			{59.5, false}, // the window is full
			{60, true},    // the call at 0 has left the window
			{61, false},
			{89.9, false}, // three calls, at 30, 59 and 60, are still in the window
			{90, true},
			{90, false},
			{1000, true},
		} {
			if got := try(tt.at); got != tt.pass {
				t.Errorf("at %v: got %t, want %t", tt.at, got, tt.pass)
			}
		}
		// A tool of another agent with the same name has a separate window.
		if stopped := take(t, db, Meter{Agent: "b", Tool: "t", Call: "x", At: noon, Rate: rate}); stopped != nil {
			t.Error(stopped)
		}
	})
}

func TestRetryAfterIsEnough(t *testing.T) {
	db := statetest.Open(t)
	m := Meter{Agent: "a", Tool: "t", Rate: &agent.Rate{Count: 2, Per: time.Hour}}
	for i, at := range []time.Duration{0, 10 * time.Minute} {
		m.Call, m.At = fmt.Sprint(i), noon.Add(at)
		if stopped := take(t, db, m); stopped != nil {
			t.Fatal(stopped)
		}
	}
	m.Call, m.At = "late", noon.Add(20*time.Minute)
	stopped := take(t, db, m)
	if stopped == nil || stopped.RetryAfter != 40*time.Minute {
		t.Fatalf("got %+v, want to wait 40 minutes", stopped)
	}
	m.At = m.At.Add(stopped.RetryAfter)
	if stopped := take(t, db, m); stopped != nil {
		t.Error(stopped)
	}
}

func TestAmounts(t *testing.T) {
	limit := &agent.Cap{PerCall: "60", PerDay: "100.00", Currency: "EUR"}
	tests := []struct {
		args string
		pass bool
	}{
		{`{"amount":60}`, true},
		{`{"amount":"40.00"}`, true},
		{`{"amount":0.01}`, false}, // the limit for the day is used up
		{`{"amount":0}`, true},
		{`{"amount":0,"currency":"EUR"}`, true},
		{`{"amount":0,"currency":"BTC"}`, false},
		{`{"amount":0,"currency":"EUR","Currency":"BTC"}`, false},
		{`{"amount":0,"currency":["EUR"]}`, false},
		{`{}`, false},
		{`{"amount":60.000000000000000000001}`, false},
		{`{"amount":-5}`, false},
		{`{"amount":1e1}`, false},
		{`{"amount":"1e999999999"}`, false},
		{`{"amount":"0x10"}`, false},
		{`{"amount":"1/2"}`, false},
		{`{"amount":"1_0"}`, false},
		{`{"amount":" 1"}`, false},
		{`{"amount":".5"}`, false},
		{`{"amount":"5."}`, false},
		{`{"amount":""}`, false},
		{`{"amount":null}`, false},
		{`{"amount":[1]}`, false},
		{`{"amount":true}`, false},
		{`{"inner":{"amount":1}}`, false},
		{`{"amount":0.00000000000000000000000000000000000000000000000001}`, false}, // too many digits
	}
	db := statetest.Open(t)
	for i, tt := range tests {
		m := Meter{Agent: "a", Tool: "t", Call: fmt.Sprint(i), At: noon, Spend: limit, Arguments: []byte(tt.args)}
		stopped := take(t, db, m)
		if (stopped == nil) != tt.pass || stopped != nil && stopped.Code != call.AmountExceeded {
			t.Errorf("%s: got %v", tt.args, stopped)
		}
	}
	tomorrow := Meter{Agent: "a", Tool: "t", Call: "x", At: noon.Add(12 * time.Hour), Spend: limit, Arguments: []byte(`{"amount":60}`)}
	if stopped := take(t, db, tomorrow); stopped != nil {
		t.Errorf("a call on the next day was refused: %v", stopped)
	}
}

func TestGiveBack(t *testing.T) {
	db := statetest.Open(t)
	m := Meter{Agent: "a", Tool: "t", Call: "1", At: noon, Spend: &agent.Cap{PerDay: "1"}, Arguments: []byte(`{"amount":0.7}`)}
	back := func(m Meter) {
		t.Helper()
		if err := db.Write(t.Context(), func(tx state.Tx) error { return GiveBack(tx, m) }); err != nil {
			t.Fatal(err)
		}
	}
	if stopped := take(t, db, m); stopped != nil {
		t.Fatal(stopped)
	}
	if take(t, db, m) == nil {
		t.Fatal("spending 0.7 twice was allowed with a limit of 1")
	}
	back(m)
	if stopped := take(t, db, m); stopped != nil {
		t.Fatalf("an amount that was given back cannot be spent again: %v", stopped)
	}
	next := m
	next.At = noon.Add(24 * time.Hour)
	if stopped := take(t, db, next); stopped != nil {
		t.Fatal(stopped)
	}
	back(m) // giving back yesterday's amount must not allow more today
	if take(t, db, next) == nil {
		t.Error("an amount of another day that was given back was spent today")
	}
}

// TestMidnight checks that a limit holds even if clocks disagree about the day.
func TestMidnight(t *testing.T) {
	db := statetest.Open(t)
	midnight := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	passed := 0
	for i := range 10 {
		at := midnight.Add(time.Duration(i%2*2-1) * time.Second) // alternately before and after midnight
		if take(t, db, Meter{Agent: "a", Tool: "t", Call: fmt.Sprint(i), At: at, Spend: &agent.Cap{PerDay: "100"}, Arguments: []byte(`{"amount":100}`)}) == nil {
			passed++
		}
	}
	if passed != 2 { // one call for each of the two days
		t.Errorf("a limit that allows one call a day allowed %d calls on two days", passed)
	}
}

// TestSpentToday checks that SpentToday lists the amounts that count toward today's limits, but no amounts of the day
// before.
func TestSpentToday(t *testing.T) {
	statetest.Each(t, func(t *testing.T, connect func() state.DB) {
		db := connect()
		for tool, at := range map[string]time.Time{"old": noon.Add(-24 * time.Hour), "pay": noon, "ahead": noon.Add(24 * time.Hour), "free": noon} {
			m := Meter{Agent: "a", Tool: tool, Call: "1", At: at, Spend: &agent.Cap{PerDay: "9"}, Arguments: []byte(`{"amount":2.5}`)}
			if stopped := take(t, db, m); stopped != nil {
				t.Fatal(stopped)
			}
			if tool == "free" {
				if err := db.Write(t.Context(), func(tx state.Tx) error { return GiveBack(tx, m) }); err != nil {
					t.Fatal(err)
				}
			}
		}
		var all []Spent
		err := db.Read(t.Context(), func(tx state.Tx) (err error) { all, err = SpentToday(tx, noon); return err })
		if want := []Spent{{"a", "ahead", "2.5"}, {"a", "pay", "2.5"}}; err != nil || !slices.Equal(all, want) {
			t.Errorf("got %v, %v", all, err)
		}
	})
}

func TestGiveBackOfARate(t *testing.T) {
	db := statetest.Open(t)
	m := Meter{Agent: "a", Tool: "t", Call: "1", At: noon, Rate: &agent.Rate{Count: 1, Per: time.Hour}}
	if stopped := take(t, db, m); stopped != nil {
		t.Fatal(stopped)
	}
	if err := db.Write(t.Context(), func(tx state.Tx) error { return GiveBack(tx, m) }); err != nil {
		t.Fatal(err)
	}
	m.Call = "2"
	if stopped := take(t, db, m); stopped != nil {
		t.Errorf("a call that was given back still counts: %v", stopped)
	}
	m.Call = "3"
	if take(t, db, m) == nil {
		t.Error("a rate of one call an hour allowed two calls")
	}
}

// TestTogether makes concurrent calls over several connections to one store. The rate limit and the spending limit must be
// enforced exactly.
func TestTogether(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		stores := []state.DB{open(), open(), open()}
		m := Meter{
			Agent: "a", At: noon, Arguments: []byte(`{"amount":0.3}`),
			Rate: &agent.Rate{Count: 10, Per: time.Minute},
		}
		rated, spent := 0, new(big.Rat)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				m := m
				m.Tool, m.Call = "rated", fmt.Sprint(i)
				passed := take(t, stores[i%len(stores)], m) == nil
				m.Tool, m.Rate, m.Spend = "capped", nil, &agent.Cap{PerDay: "10.00"}
				paid := take(t, stores[i%len(stores)], m) == nil
				mu.Lock()
				defer mu.Unlock()
				if passed {
					rated++
				}
				if paid {
					spent.Add(spent, big.NewRat(3, 10))
				}
			})
		}
		wg.Wait()
		if rated != 10 {
			t.Errorf("a rate of 10 a minute allowed %d calls", rated)
		}
		if spent.FloatString(2) != "9.90" {
			t.Errorf("spent %s, want 9.90 of 10.00", spent.FloatString(2))
		}
	})
}

// The wait in a hint is rounded up.
func TestTryAgain(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		3*time.Hour + 48*time.Minute + 48*time.Second + 915*time.Millisecond: "retry in 3h48m49s",
		time.Minute: "retry in 1m0s", 1500*time.Millisecond + 1: "retry in 1.501s", time.Millisecond: "retry in 1ms",
	} {
		if got := tryAgain(wait); got != want {
			t.Errorf("tryAgain(%v) = %q, want %q", wait, got, want)
		}
	}
}
