package agent

import (
	"math/big"
	"time"
)

// Guardrails are the rails an agent declares. A runtime enforces them, and may
// hold the agent to more.
type Guardrails struct {
	// MaxLength caps the bytes of a call's arguments; 0 declares no cap.
	MaxLength int64 `json:"max_length,omitempty"`
	// DenyPatterns are regular expressions that no argument may match.
	DenyPatterns []string `json:"deny_patterns,omitempty"`
	// PII lists the categories that are redacted from arguments.
	PII []string `json:"pii_redaction,omitempty"`
	// OutputSchema is the JSON Schema that results hold to, as text.
	OutputSchema string `json:"output_schema,omitempty"`
	// OnLeak is redact or block: what happens to a result that holds a secret.
	OnLeak string `json:"on_leak,omitempty"`
}

// IsZero reports whether nothing is declared.
func (g Guardrails) IsZero() bool {
	return g.MaxLength == 0 && len(g.DenyPatterns) == 0 && len(g.PII) == 0 && g.OutputSchema == "" && g.OnLeak == ""
}

// ToolPolicy are the rails of one tool.
type ToolPolicy struct {
	// HumanApproval asks a person before every call.
	HumanApproval bool `json:"human_approval,omitempty"`
	// Idempotent lets the runtime repeat the call after a crash.
	Idempotent bool  `json:"idempotent,omitempty"`
	Rate       *Rate `json:"rate_limit,omitempty"`
	Spend      *Cap  `json:"max_amount,omitempty"`
}

// Rate is at most Count calls in any window of length Per.
type Rate struct {
	Count int64         `json:"count"`
	Per   time.Duration `json:"per"`
}

// AtMost reports whether r never allows more than other in any window.
func (r Rate) AtMost(other Rate) bool { return r.Count <= other.Count && r.Per >= other.Per }

func (r Rate) String() string {
	for unit, d := range RateUnits {
		if d == r.Per {
			return big.NewInt(r.Count).String() + "/" + unit
		}
	}
	return big.NewInt(r.Count).String() + " per " + r.Per.String()
}

// RateUnits are the windows that a rate limit can name.
var RateUnits = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
}

// Cap bounds what calls may spend. Amounts are decimals, kept as written;
// empty means no cap.
type Cap struct {
	PerCall  string `json:"per_call,omitempty"`
	PerDay   string `json:"per_day,omitempty"`
	Currency string `json:"currency,omitempty"`
}

// AmountAtMost reports whether decimal a is at most b, where no cap is above
// every amount.
func AmountAtMost(a, b string) bool {
	if b == "" {
		return true
	}
	if a == "" {
		return false
	}
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) <= 0
}

// PIICategories are the categories that pii_redaction can name.
var PIICategories = []string{
	"credit_card", "email", "phone", "iban", "national_id", "ip_address", "mac_address", "passport",
	"date_of_birth", "crypto_wallet",
}
