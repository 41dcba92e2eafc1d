// Package limit counts: how often a tool may be called, and how much its calls
// may spend.
//
// A rate is exact: in no window of its length, wherever it begins, are there
// more calls than it allows, over all processes and machines that share a
// store. A cap is exact too: amounts are decimals of any precision, and are
// reserved before the call is made, so that calls side by side never exceed it
// together. Limits are given back only if the call was surely never sent: a call
// that was sent counts, whatever its outcome, also if it only read.
//
// Look only looks; Take is part of the transaction that writes the intent.
// Times come from one machine's clock at a time: a clock that was set back
// makes windows longer, never shorter.
package limit

import (
	"bytes"
	"errors"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/store/state"
)

// stage is the name that refusals carry.
const stage = "limit"

// Meter is one call of a limited tool.
type Meter struct {
	Agent, Tool string
	// Call is the call's id, At its time.
	Call string
	At   time.Time
	// Rate and Spend are the tool's limits; nil where there is none.
	Rate  *agent.Rate
	Spend *agent.Cap
	// Arguments hold the amount that is to be spent.
	Arguments []byte
}

// Look reports whether the limits would let the call pass now.
func Look(tx state.Tx, m Meter) (*call.Refusal, error) {
	if stopped, err := m.lookRate(tx); stopped != nil || err != nil {
		return stopped, err
	}
	stopped, _, err := m.lookSpend(tx)
	return stopped, err
}

const (
	// touch makes the meter's row, or takes its lock. SQLite needs a real change
	// there as little as PostgreSQL does.
	touch    = `INSERT INTO meters (agent, tool, day, spent) VALUES ($1, $2, '', '0') ON CONFLICT (agent, tool) DO UPDATE SET spent = meters.spent`
	dropTick = `DELETE FROM ticks WHERE agent = $1 AND tool = $2 AND at = $3 AND call = $4`
	addTick  = `INSERT INTO ticks (agent, tool, at, call) VALUES ($1, $2, $3, $4)`
	oldTicks = `DELETE FROM ticks WHERE agent = $1 AND tool = $2 AND at <= $3`
	setSpent = `UPDATE meters SET day = $1, spent = $2 WHERE agent = $3 AND tool = $4`
)

// Take counts the call and reserves its amount, or refuses.
func Take(tx state.Tx, m Meter) (*call.Refusal, error) {
	if m.Rate == nil && m.Spend == nil {
		return nil, nil
	}
	if _, err := tx.Exec(touch, m.Agent, m.Tool); err != nil {
		return nil, err
	}
	stopped, err := m.lookRate(tx)
	if stopped != nil || err != nil {
		return stopped, err
	}
	stopped, total, err := m.lookSpend(tx)
	if stopped != nil || err != nil {
		return stopped, err
	}
	if m.Rate != nil {
		// Older ones stay for one window more: a clock may be set back.
		if _, err := tx.Exec(oldTicks, m.Agent, m.Tool, m.At.Add(-2*m.Rate.Per).UnixMicro()); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(addTick, m.Agent, m.Tool, m.At.UnixMicro(), m.Call); err != nil {
			return nil, err
		}
	}
	if total != nil {
		// Days are compared as text, which their form allows.
		_, err = tx.Exec(`UPDATE meters SET spent = $1, day = CASE WHEN day > $2 THEN day ELSE $2 END WHERE agent = $3 AND tool = $4`,
			decimal(total), m.day(), m.Agent, m.Tool)
	}
	return nil, err
}

// GiveBack returns what a call took that was surely never sent.
func GiveBack(tx state.Tx, m Meter) error {
	if m.Rate != nil {
		if _, err := tx.Exec(dropTick, m.Agent, m.Tool, m.At.UnixMicro(), m.Call); err != nil {
			return err
		}
	}
	amount, _ := m.amount()
	if m.Spend == nil || m.Spend.PerDay == "" || amount == nil {
		return nil
	}
	if _, err := tx.Exec(touch, m.Agent, m.Tool); err != nil {
		return err
	}
	day, spent, err := m.spent(tx)
	if err != nil || day != m.day() {
		return err // another day has begun, with nothing of this call in it
	}
	spent.Sub(spent, amount)
	_, err = tx.Exec(setSpent, day, decimal(spent), m.Agent, m.Tool)
	return err
}

func (m Meter) windowStart() int64 { return m.At.Add(-m.Rate.Per).UnixMicro() }

// A call counts for the whole length of the window after it. Ticks of a clock
// that ran ahead count too.
const (
	countTicks = `SELECT COUNT(*) FROM ticks WHERE agent = $1 AND tool = $2 AND at > $3`
	nthTick    = `SELECT at FROM ticks WHERE agent = $1 AND tool = $2 AND at > $3 ORDER BY at DESC LIMIT 1 OFFSET $4`
)

func (m Meter) lookRate(tx state.Tx) (*call.Refusal, error) {
	if m.Rate == nil {
		return nil, nil
	}
	var n int64
	one := func(into *int64) func(state.Row) error {
		return func(row state.Row) error { return row.Scan(into) }
	}
	if err := tx.Query(countTicks, []any{m.Agent, m.Tool, m.windowStart()}, one(&n)); err != nil || n < m.Rate.Count {
		return nil, err
	}
	// The next call is free when the one that fills the window has left it.
	var at int64
	if err := tx.Query(nthTick, []any{m.Agent, m.Tool, m.windowStart(), m.Rate.Count - 1}, one(&at)); err != nil {
		return nil, err
	}
	wait := time.UnixMicro(at).Add(m.Rate.Per).Sub(m.At)
	stopped := call.Refuse(stage, call.RateLimited, "%s may be called %s, and was", m.Tool, m.Rate).Again()
	stopped.RetryAfter = max(wait, time.Millisecond)
	stopped.Hint = tryAgain(stopped.RetryAfter)
	return stopped, nil
}

// tryAgain says how long to wait, to the second where it is long, and never too
// short.
func tryAgain(wait time.Duration) string {
	unit := time.Millisecond
	if wait > time.Minute {
		unit = time.Second
	}
	return "try again in " + (wait + unit - 1).Truncate(unit).String()
}

// lookSpend reports whether the amount fits, and returns the day's total with it.
// The total is nil where no day is capped.
func (m Meter) lookSpend(tx state.Tx) (*call.Refusal, *big.Rat, error) {
	if m.Spend == nil {
		return nil, nil, nil
	}
	amount, problem := m.amount()
	if problem != "" {
		return call.Refuse(stage, call.AmountExceeded, "%s has a cap on its amount, and %s", m.Tool, problem), nil, nil
	}
	if over(amount, m.Spend.PerCall) {
		return call.Refuse(stage, call.AmountExceeded,
			"the amount is above the %s that one call of %s may spend", m.money(m.Spend.PerCall), m.Tool), nil, nil
	}
	if m.Spend.PerDay == "" {
		return nil, nil, nil
	}
	day, spent, err := m.spent(tx)
	if err != nil {
		return nil, nil, err
	}
	total := amount
	if day >= m.day() { // a day that has begun does not end because a clock is set back
		total = new(big.Rat).Add(amount, spent)
	}
	if over(total, m.Spend.PerDay) {
		return call.Refuse(stage, call.AmountExceeded,
			"with this call %s would spend more than the %s of a day", m.Tool, m.money(m.Spend.PerDay)), nil, nil
	}
	return nil, total, nil
}

func (m Meter) money(amount string) string { return strings.TrimSpace(amount + " " + m.Spend.Currency) }

// day is the meter's.
func (m Meter) day() string { return dayOf(m.At) }

// dayOf is a day in UTC, the same on every machine.
func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Spent is what a capped tool has used up on a day.
type Spent struct{ Agent, Tool, Amount string }

// SpentToday lists what capped tools have used up on the day of now, as the caps
// count it: after a clock was set back, the day that was begun goes on.
func SpentToday(tx state.Tx, now time.Time) (all []Spent, err error) {
	err = tx.Query(`SELECT agent, tool, spent FROM meters WHERE day >= $1 AND spent <> '0' ORDER BY agent, tool`,
		[]any{dayOf(now)}, func(row state.Row) error {
			var s Spent
			err := row.Scan(&s.Agent, &s.Tool, &s.Amount)
			all = append(all, s)
			return err
		})
	return all, err
}

var errMeter = errors.New("what was spent so far cannot be read")

func (m Meter) spent(tx state.Tx) (day string, spent *big.Rat, err error) {
	spent = new(big.Rat)
	err = tx.Query(`SELECT day, spent FROM meters WHERE agent = $1 AND tool = $2`,
		[]any{m.Agent, m.Tool}, func(row state.Row) error {
			var text string
			if err := row.Scan(&day, &text); err != nil {
				return err
			}
			if _, ok := spent.SetString(text); !ok {
				return errMeter
			}
			return nil
		})
	return day, spent, err
}

func over(amount *big.Rat, limit string) bool {
	if limit == "" {
		return false
	}
	most, ok := new(big.Rat).SetString(limit)
	return !ok || amount.Cmp(most) > 0
}

// maxDigits bounds the length of an amount, which is computed with exactly.
const maxDigits = 40

// amount is the call's member amount, a number or a string of digits. Exponents
// are not taken: 1e999999999 is a short text and a huge number.
func (m Meter) amount() (amount *big.Rat, problem string) {
	text, found, doubtful := member(m.Arguments, "amount")
	switch {
	case doubtful:
		return nil, "another argument is called the same but for its capitals"
	case !found:
		return nil, "the arguments have no amount"
	case len(text) > maxDigits || !isDecimal(text):
		return nil, "the amount is not a plain decimal number"
	}
	amount, ok := new(big.Rat).SetString(text)
	switch {
	case !ok:
		return nil, "the amount is not a plain decimal number"
	case amount.Sign() < 0:
		return nil, "the amount is negative"
	}
	return amount, ""
}

func isDecimal(s string) bool {
	whole, fraction, point := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return digits(whole) && (!point || digits(fraction))
}

// member is a number or string of the object itself, not of what is in it. Some
// readers take Amount for amount, so where one is called like that it is doubtful
// which is meant.
func member(object []byte, name string) (text string, found, doubtful bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(object))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return "", false, false
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return "", found, doubtful
		}
		alike, exact := strings.EqualFold(key.String(), name), key.String() == name
		doubtful = doubtful || alike && !exact
		if !exact {
			if err := d.SkipValue(); err != nil {
				return text, found, doubtful
			}
			continue
		}
		v, err := d.ReadValue()
		found = found || !errors.Is(err, io.EOF)
		if err != nil {
			return "", found, doubtful
		}
		if v.Kind() == '"' || v.Kind() == '0' {
			text = scalar(v)
		}
	}
	return text, found, doubtful
}

// scalar is the text of a string, or a number as it was written.
func scalar(v jsontext.Value) string {
	if v.Kind() != '"' {
		return string(v)
	}
	text, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return ""
	}
	return string(text)
}

// decimal writes an amount with all its digits. Sums of decimals are decimals.
func decimal(r *big.Rat) string {
	n, _ := r.FloatPrec()
	return r.FloatString(n)
}
