package limit

import (
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// Arguments with both amount and Amount are refused, because a server may read Amount where ambit counts amount.
func TestAmountsAlike(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"amount":1}`:                        true,
		`{"amount":1,"currency":"EUR"}`:       true,
		`{"amount":1,"Amount":1000}`:          false,
		`{"AMOUNT":1000,"amount":1}`:          false,
		`{"Amount":1}`:                        false,
		`{"amount":1,"deep":{"Amount":1000}}`: true,
		`{"amount":{"a":1}}`:                  false,
	} {
		if amount, problem := (Meter{Spend: &agent.Cap{}, Arguments: []byte(text)}).amount(); (problem == "") != ok || ok && amount.Num().Int64() != 1 {
			t.Errorf("%s: got the amount %v and the problem %q", text, amount, problem)
		}
	}
}
