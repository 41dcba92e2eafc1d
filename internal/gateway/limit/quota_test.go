package limit

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

func count(t testing.TB, db state.DB, q *Quotas, principal string, at time.Time) *call.Refusal {
	t.Helper()
	stopped, err := q.Count(t.Context(), db, principal, at, false)
	if err != nil {
		t.Error(err)
	}
	return stopped
}

func TestQuota(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		q := &Quotas{Quota{PerMinute: 2, PerDay: 3}, map[string]Quota{"free": {}, "busy": {PerMinute: 5}}}
		for _, tt := range []struct {
			name, principal string
			after           time.Duration
			stopped         string
		}{
			{"the first", "ada", 0, ""},
			{"the second", "ada", 10 * time.Second, ""},
			{"one too many for the minute", "ada", 20 * time.Second, "2 calls a minute"},
			{"another principal", "eve", 20 * time.Second, ""},
			{"the next minute", "ada", time.Minute, ""},
			{"one too many for the day", "ada", 2 * time.Minute, "3 calls a day"},
			{"a clock set back", "ada", 30 * time.Second, "3 calls a day"},
			{"the next day", "ada", 24 * time.Hour, ""},
			{"a clock set back to the day before", "ada", 3 * time.Minute, ""},
			{"a second call after the clock was set back", "ada", 3 * time.Minute, "2 calls a minute"},
		} {
			stopped := count(t, db, q, tt.principal, noon.Add(tt.after))
			switch {
			case stopped == nil && tt.stopped == "":
			case stopped == nil || tt.stopped == "" || !strings.Contains(stopped.Message, tt.stopped):
				t.Errorf("%s: got %v, want %q", tt.name, stopped, tt.stopped)
			case stopped.Code != call.RateLimited || stopped.Stage != stage || !stopped.Retryable || stopped.RetryAfter <= 0 || stopped.Effect != call.NoEffect:
				t.Errorf("%s: got the refusal %+v", tt.name, stopped)
			}
		}
		for range 10 {
			if stopped := count(t, db, q, "free", noon); stopped != nil {
				t.Errorf("a principal without a quota was refused: %v", stopped)
			}
		}
		for i := range 6 {
			if stopped := count(t, db, q, "busy", noon); (stopped != nil) != (i == 5) {
				t.Errorf("principal with a separate quota, call %d: got %v", i, stopped)
			}
		}
	})
}

// A machine with a fast clock may have started a period in the future. The refusal must contain the wait until the
// end of that period.
func TestQuotaReportsRetryTime(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		for _, tt := range []struct {
			name  string
			quota Quota
			ahead time.Duration
			free  time.Duration
		}{
			{"minute", Quota{PerMinute: 1}, 0, time.Minute},
			{"minute, ahead", Quota{PerMinute: 1}, 10 * time.Minute, 11 * time.Minute},
			{"day, ahead", Quota{PerDay: 1}, 72 * time.Hour, 84 * time.Hour},
		} {
			q := &Quotas{Quota: tt.quota}
			if stopped := count(t, db, q, tt.name, noon.Add(tt.ahead)); stopped != nil {
				t.Fatalf("%s: the first call was refused: %v", tt.name, stopped)
			}
			now := noon.Add(20 * time.Second)
			stopped := count(t, db, q, tt.name, now)
			if want := tt.free - 20*time.Second; stopped == nil || stopped.RetryAfter != want || stopped.Hint != "retry in "+want.String() {
				t.Errorf("%s: got the refusal %+v", tt.name, stopped)
				continue
			}
			if again := count(t, db, q, tt.name, now.Add(stopped.RetryAfter-time.Millisecond)); again == nil {
				t.Errorf("%s: a call before the end of the wait was allowed", tt.name)
			}
			if again := count(t, db, q, tt.name, now.Add(stopped.RetryAfter)); again != nil {
				t.Errorf("%s: a call after the wait was refused: %v", tt.name, again)
			}
		}
	})
}

// Two gateways share a quota exactly.
func TestQuotaIsShared(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		q := &Quotas{Quota: Quota{PerMinute: 30, PerDay: 1000}}
		var passed atomic.Int64
		var all sync.WaitGroup
		for _, db := range []state.DB{open(), open()} {
			for range 4 {
				all.Go(func() {
					for range 10 {
						if count(t, db, q, "ada", noon) == nil {
							passed.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		if n := passed.Load(); n != 30 {
			t.Errorf("%d calls were allowed, want 30", n)
		}
	})
}

func TestReadQuotas(t *testing.T) {
	for _, tt := range []struct{ name, text, wrong string }{
		{"none", "[memory]\nttl = \"1d\"\n", ""},
		{"all", "[quota]\ncalls_per_minute = 6\ncalls_per_day = 50\n\n[quota.principals.\"ci\"]\ncalls_per_minute = 60\n", ""},
		{"misspelt", "[quota]\ncalls_per_hour = 6\n", "there is no setting calls_per_hour"},
		{"below zero", "[quota]\ncalls_per_day = -1\n", "a number of calls must be at least 1"},
		{"below zero for one principal", "[quota.principals.ci]\ncalls_per_minute = -1\n", "a number of calls must be at least 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := home.At(t.TempDir())
			if err := os.WriteFile(h.Config(), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			q, err := ReadQuotas(h)
			switch {
			case tt.wrong != "":
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("ReadQuotas returned the error %v", err)
				}
			case err != nil:
				t.Error(err)
			case tt.name == "none":
				if q != nil {
					t.Errorf("ReadQuotas returned %+v, want nil", q)
				}
			default:
				if q.of("ada") != (Quota{6, 50}) || q.of("ci") != (Quota{PerMinute: 60}) {
					t.Errorf("ReadQuotas returned %+v", q)
				}
			}
		})
	}
}
