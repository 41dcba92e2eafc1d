package limit

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// FuzzAmount checks that the counted amount equals the amount that the tool receives, is not negative, and is
// compared correctly with the limit.
func FuzzAmount(f *testing.F) {
	for _, text := range []string{
		`{"amount":1}`, `{"amount":0,"AMount":1}`, `{"amount":"1.50"}`, `{"amount":-1}`, `{"amount":1e9}`, `{"amount":0.1,"amount":99}`, `{"a":{"amount":1}}`, `{"amount":"1/2"}`, `{"amount":"0x10"}`,
		`{"amount":null}`, `{"amount":[1]}`, `{"amount":"` + strings.Repeat("9", 500) + `"}`, `{"amount":""}`, `{"amount":"+1"}`, `{"amount":"1_000"}`, `{"\u0061mount":5}`, `[]`, ``,
	} {
		f.Add([]byte(text))
	}
	limit := big.NewRat(10, 1)
	f.Fuzz(func(t *testing.T, arguments []byte) {
		m := Meter{Tool: "pay", Spend: &agent.Cap{PerCall: "10"}, Arguments: arguments}
		amount, problem := m.amount()
		if problem != "" {
			if amount != nil {
				t.Errorf("%s: got both the amount %v and the problem %q", arguments, amount, problem)
			}
			return
		}
		if amount.Sign() < 0 {
			t.Errorf("%s counts as %v", arguments, amount)
		}
		if over(amount, m.Spend.PerCall) != (amount.Cmp(limit) > 0) {
			t.Errorf("the comparison of the amount %v with the limit 10 has the wrong result", amount)
		}
		// A parser that ignores case must find the same number. Arguments with two amounts are skipped, because the
		// gateway refuses duplicate keys earlier.
		var sent struct{ Amount json.Number }
		var plain map[string]json.RawMessage
		if json.Unmarshal(arguments, &plain) != nil || strings.Count(string(arguments), `"amount"`) != 1 || strings.Contains(string(arguments), `\u`) {
			return
		}
		d := json.NewDecoder(strings.NewReader(string(arguments)))
		d.UseNumber()
		if d.Decode(&sent) != nil || sent.Amount == "" {
			return
		}
		if other, ok := new(big.Rat).SetString(string(sent.Amount)); !ok || other.Cmp(amount) != 0 {
			t.Errorf("%s counts as %v, but another parser reads %s", arguments, amount, sent.Amount)
		}
	})
}
