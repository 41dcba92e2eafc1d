// Package limit enforces rate limits, spending limits and quotas.
//
// Rate limits and spending limits are exact. A limit of 10 calls a minute allows at most 10 calls in any 60 seconds,
// across all processes and machines that share a store. Amounts are decimals of any precision. An amount is reserved
// before the call is sent, so that concurrent calls together cannot exceed the limit.
//
// Every call that was sent counts, even if it failed or only read data. [GiveBack] is only for a call that was
// certainly never sent.
//
// Each machine uses its own clock. If a clock is moved back, windows become longer, but never shorter.
package limit

import (
	"errors"
	"math/big"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/rawjson"
	"github.com/ambit-run/ambit/internal/store/state"
)

const stage = "limit"

// Meter describes one call of a limited tool.
type Meter struct {
	Agent, Tool string
	// Call is the id of the call.
	Call string
	// At is the time of the call.
	At time.Time
	// Rate and Spend are the tool's limits. Nil means no limit.
	Rate  *agent.Rate
	Spend *agent.Cap
	// Arguments is a JSON object. Its member "amount" is the amount that the call spends.
	Arguments []byte
}

// Look returns the refusal that [Take] would return now. It changes nothing.
func Look(tx state.Tx, m Meter) (*call.Refusal, error) {
	stopped, _, err := m.check(tx)
	return stopped, err
}

// check checks the rate limit and the spending limits. The second result is the new total for the day, or nil if there
// is no daily limit.
func (m Meter) check(tx state.Tx) (*call.Refusal, *big.Rat, error) {
	if stopped, err := m.checkRate(tx); stopped != nil || err != nil {
		return stopped, nil, err
	}
	return m.checkSpend(tx)
}

const (
	// lockMeter creates the meter's row, or locks it if it exists. In SQLite and PostgreSQL, an update locks a row even if
	// it changes nothing.
	lockMeter = `INSERT INTO meters (agent, tool, day, spent) VALUES ($1, $2, '', '0')
ON CONFLICT (agent, tool) DO UPDATE SET spent = meters.spent`
	dropTick = `DELETE FROM ticks WHERE agent = $1 AND tool = $2 AND at = $3 AND call = $4`
	addTick  = `INSERT INTO ticks (agent, tool, at, call) VALUES ($1, $2, $3, $4)`
	oldTicks = `DELETE FROM ticks WHERE agent = $1 AND tool = $2 AND at <= $3`
	setSpent = `UPDATE meters SET day = $1, spent = $2 WHERE agent = $3 AND tool = $4`
)

// Take counts the call and reserves its amount, or returns a refusal. The gateway calls Take in the transaction that it
// commits before it sends the call.
func Take(tx state.Tx, m Meter) (*call.Refusal, error) {
	if m.Rate == nil && m.Spend == nil {
		return nil, nil
	}
	if _, err := tx.Exec(lockMeter, m.Agent, m.Tool); err != nil {
		return nil, err
	}
	stopped, total, err := m.check(tx)
	if stopped != nil || err != nil {
		return stopped, err
	}
	if m.Rate != nil {
		// A tick is the time of a counted call. Ticks are kept for two windows, because a clock may be moved back.
		if _, err := tx.Exec(oldTicks, m.Agent, m.Tool, m.At.Add(-2*m.Rate.Per).UnixMicro()); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(addTick, m.Agent, m.Tool, m.At.UnixMicro(), m.Call); err != nil {
			return nil, err
		}
	}
	if total != nil {
		// Days are ISO dates, so comparing the strings also compares the times.
		_, err = tx.Exec(`UPDATE meters SET spent = $1, day = CASE WHEN day > $2 THEN day ELSE $2 END
WHERE agent = $3 AND tool = $4`,
			decimal(total), m.day(), m.Agent, m.Tool)
	}
	return nil, err
}

// GiveBack undoes [Take] for a call that was certainly never sent.
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
	if _, err := tx.Exec(lockMeter, m.Agent, m.Tool); err != nil {
		return err
	}
	day, spent, err := m.spent(tx)
	if err != nil || day != m.day() {
		return err // the amount was reserved on a different day
	}
	spent.Sub(spent, amount)
	_, err = tx.Exec(setSpent, day, decimal(spent), m.Agent, m.Tool)
	return err
}

// A tick is the time of a counted call. It counts toward the limit for one window. Ticks in the future count too,
// because another clock may be ahead.
const nthTick = `SELECT at FROM ticks WHERE agent = $1 AND tool = $2 AND at > $3 ORDER BY at DESC LIMIT 1 OFFSET $4`

func (m Meter) checkRate(tx state.Tx) (*call.Refusal, error) {
	if m.Rate == nil {
		return nil, nil
	}
	// The window is full if it contains Count ticks. The next call is allowed when the oldest of these ticks has left the
	// window.
	var at int64
	full := m.Rate.Count < 1
	err := tx.Query(nthTick, []any{m.Agent, m.Tool, m.At.Add(-m.Rate.Per).UnixMicro(), max(m.Rate.Count-1, 0)},
		func(row state.Row) error {
			full = true
			return row.Scan(&at)
		})
	if err != nil || !full {
		return nil, err
	}
	wait := time.UnixMicro(at).Add(m.Rate.Per).Sub(m.At)
	stopped := call.Refuse(stage, call.RateLimited, "%s reached its limit of %s", m.Tool, m.Rate).Again()
	stopped.RetryAfter = max(wait, time.Millisecond)
	stopped.Hint = tryAgain(stopped.RetryAfter)
	return stopped, nil
}

// tryAgain returns a hint with the time to wait, rounded up to milliseconds or to seconds.
func tryAgain(wait time.Duration) string {
	unit := time.Millisecond
	if wait > time.Minute {
		unit = time.Second
	}
	return "retry in " + (wait + unit - 1).Truncate(unit).String()
}

// checkSpend checks the amount against the spending limits. It returns the day's total including the amount, or nil if
// there is no daily limit.
func (m Meter) checkSpend(tx state.Tx) (*call.Refusal, *big.Rat, error) {
	if m.Spend == nil {
		return nil, nil, nil
	}
	amount, problem := m.amount()
	if problem != "" {
		return call.Refuse(stage, call.AmountExceeded, "%s has a spending limit, but %s", m.Tool, problem), nil, nil
	}
	if named, found, doubtful := member(m.Arguments, "currency"); m.Spend.Currency != "" &&
		(doubtful || found && named != m.Spend.Currency) {
		return call.Refuse(stage, call.AmountExceeded,
			"the spending limit of %s is in %s, but the call names another currency", m.Tool, m.Spend.Currency), nil, nil
	}
	if over(amount, m.Spend.PerCall) {
		return call.Refuse(stage, call.AmountExceeded,
			"the amount exceeds the limit of %s for one call to %s", m.money(m.Spend.PerCall), m.Tool), nil, nil
	}
	if m.Spend.PerDay == "" {
		return nil, nil, nil
	}
	day, spent, err := m.spent(tx)
	if err != nil {
		return nil, nil, err
	}
	total := amount
	if day >= m.day() { // the stored day is later than today if the clock was moved back
		total = new(big.Rat).Add(amount, spent)
	}
	if over(total, m.Spend.PerDay) {
		return call.Refuse(stage, call.AmountExceeded,
			"this call would make %s exceed its limit of %s a day", m.Tool, m.money(m.Spend.PerDay)), nil, nil
	}
	return nil, total, nil
}

func (m Meter) money(amount string) string { return strings.TrimSpace(amount + " " + m.Spend.Currency) }

func (m Meter) day() string { return dayOf(m.At) }

// dayOf returns the UTC date, because it is the same on all machines.
func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Spent is the amount that a tool has spent on one day.
type Spent struct{ Agent, Tool, Amount string }

// SpentToday returns the amounts spent on the current UTC date. If a clock was moved back, the result includes amounts
// from later days.
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

// maxDigits is the maximum length of an amount. It is limited because exact arithmetic with very long numbers is slow.
const maxDigits = 40

// amount returns the argument "amount", which must be a number or a string with a decimal number. Exponents are not
// allowed, because a short text such as 1e999999999 would have a billion digits.
func (m Meter) amount() (amount *big.Rat, problem string) {
	text, found, doubtful := member(m.Arguments, "amount")
	switch {
	case doubtful:
		return nil, "the name of another argument differs from \"amount\" only in case"
	case !found:
		return nil, "the arguments have no \"amount\""
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

// member returns the text of a member of the object, if the value is a number or a string. The third result reports
// whether another member has the same name in a different case. Some parsers treat Amount as amount.
func member(object []byte, name string) (text string, found, doubtful bool) {
	var members map[string]jsontext.Value
	if json.Unmarshal(object, &members) != nil {
		return "", false, false
	}
	for other := range members {
		doubtful = doubtful || other != name && strings.EqualFold(other, name)
	}
	value, found := members[name]
	switch value.Kind() {
	case '0':
		text = string(value)
	case '"':
		text, _ = rawjson.Text(value)
	}
	return text, found, doubtful
}

// decimal formats an amount exactly. This is always possible, because amounts are sums of decimals and have a finite
// number of digits.
func decimal(r *big.Rat) string {
	n, _ := r.FloatPrec()
	return r.FloatString(n)
}
