// Package limit enforces rate limits, spending limits and quotas.
//
// A rate is exact: no window of its length contains more calls than it allows, over
// all processes and machines that share a store. A spending limit is exact too:
// amounts are decimals of any precision and are reserved before the call, so that
// concurrent calls together never exceed the limit. A call that was sent counts,
// whatever its outcome and even if it only read; only a call that was certainly never
// sent is returned to the limit.
//
// [Look] checks and changes nothing. [Take] is part of the transaction that writes the
// intent. Each machine uses its own clock: a clock that was set back makes windows
// longer, never shorter.
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

// stage is the name of the stage in refusals.
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
	// Arguments contain the amount to spend.
	Arguments []byte
}

// Look returns the refusal that Take would return now.
func Look(tx state.Tx, m Meter) (*call.Refusal, error) {
	if stopped, err := m.lookRate(tx); stopped != nil || err != nil {
		return stopped, err
	}
	stopped, _, err := m.lookSpend(tx)
	return stopped, err
}

const (
	// touch creates the meter's row, or locks it: an update without a change locks in
	// SQLite and in PostgreSQL.
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
		// Older ticks stay for one more window, because a clock may be set back.
		if _, err := tx.Exec(oldTicks, m.Agent, m.Tool, m.At.Add(-2*m.Rate.Per).UnixMicro()); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(addTick, m.Agent, m.Tool, m.At.UnixMicro(), m.Call); err != nil {
			return nil, err
		}
	}
	if total != nil {
		// Days are ISO dates, so they compare as text.
		_, err = tx.Exec(`UPDATE meters SET spent = $1, day = CASE WHEN day > $2 THEN day ELSE $2 END WHERE agent = $3 AND tool = $4`,
			decimal(total), m.day(), m.Agent, m.Tool)
	}
	return nil, err
}

// GiveBack undoes Take for a call that was certainly never sent.
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
		return err // the amount was reserved on another day
	}
	spent.Sub(spent, amount)
	_, err = tx.Exec(setSpent, day, decimal(spent), m.Agent, m.Tool)
	return err
}

func (m Meter) windowStart() int64 { return m.At.Add(-m.Rate.Per).UnixMicro() }

// A tick counts for one window after it. Ticks in the future, of a clock that was
// ahead, count too.
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
	// The next call is allowed when the oldest tick that fills the window has left it.
	var at int64
	if err := tx.Query(nthTick, []any{m.Agent, m.Tool, m.windowStart(), m.Rate.Count - 1}, one(&at)); err != nil {
		return nil, err
	}
	wait := time.UnixMicro(at).Add(m.Rate.Per).Sub(m.At)
	stopped := call.Refuse(stage, call.RateLimited, "%s reached its limit of %s", m.Tool, m.Rate).Again()
	stopped.RetryAfter = max(wait, time.Millisecond)
	stopped.Hint = tryAgain(stopped.RetryAfter)
	return stopped, nil
}

// tryAgain returns a hint with the wait, rounded up: to seconds if it is long.
func tryAgain(wait time.Duration) string {
	unit := time.Millisecond
	if wait > time.Minute {
		unit = time.Second
	}
	return "retry in " + (wait + unit - 1).Truncate(unit).String()
}

// lookSpend checks the amount and returns the day's total including it. The total is
// nil without a limit per day.
func (m Meter) lookSpend(tx state.Tx) (*call.Refusal, *big.Rat, error) {
	if m.Spend == nil {
		return nil, nil, nil
	}
	amount, problem := m.amount()
	if problem != "" {
		return call.Refuse(stage, call.AmountExceeded, "%s has a spending limit, and %s", m.Tool, problem), nil, nil
	}
	if over(amount, m.Spend.PerCall) {
		return call.Refuse(stage, call.AmountExceeded,
			"the amount exceeds the limit of %s for one call of %s", m.money(m.Spend.PerCall), m.Tool), nil, nil
	}
	if m.Spend.PerDay == "" {
		return nil, nil, nil
	}
	day, spent, err := m.spent(tx)
	if err != nil {
		return nil, nil, err
	}
	total := amount
	if day >= m.day() { // a clock that is set back does not restart a day
		total = new(big.Rat).Add(amount, spent)
	}
	if over(total, m.Spend.PerDay) {
		return call.Refuse(stage, call.AmountExceeded,
			"with this call %s would exceed its limit of %s a day", m.Tool, m.money(m.Spend.PerDay)), nil, nil
	}
	return nil, total, nil
}

func (m Meter) money(amount string) string { return strings.TrimSpace(amount + " " + m.Spend.Currency) }

func (m Meter) day() string { return dayOf(m.At) }

// dayOf returns the day in UTC, the same on every machine.
func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Spent is the amount that a tool with a limit spent on a day.
type Spent struct{ Agent, Tool, Amount string }

// SpentToday lists the amounts spent on the day of now. If a clock was set back, the
// later day that was begun counts.
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

var errMeter = errors.New("the amount spent so far cannot be read")

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

// maxDigits bounds the length of an amount, because arithmetic on amounts is exact.
const maxDigits = 40

// amount returns the argument amount: a number or a string of digits. Exponents are
// refused, because 1e999999999 is a short text and a huge number.
func (m Meter) amount() (amount *big.Rat, problem string) {
	text, found, doubtful := member(m.Arguments, "amount")
	switch {
	case doubtful:
		return nil, "another argument differs from amount only in case"
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

// member returns a number or string that is a direct member of the object. Some parsers
// read Amount as amount, so a name that differs only in case makes the result doubtful.
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

// scalar returns the text of a string, or a number as written.
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

// decimal formats an amount with all its digits. Sums of decimals are decimals.
func decimal(r *big.Rat) string {
	n, _ := r.FloatPrec()
	return r.FloatString(n)
}
