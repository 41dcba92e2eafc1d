package agent

import (
	"math/big"
	"time"
)

// Guardrails are the checks on content that an agent declares. The runtime enforces them, and the operator may add more.
type Guardrails struct {
	// MaxLength caps the bytes of a call's arguments; 0 declares no cap.
	MaxLength int64 `json:"max_length,omitempty"`
	// DenyPatterns are regular expressions. A call is refused if an argument matches one.
	DenyPatterns []string `json:"deny_patterns,omitempty"`
	// PII lists the categories of personal data that are redacted from arguments.
	PII []string `json:"pii_redaction,omitempty"`
	// OutputSchema is the text of the JSON Schema for results.
	OutputSchema string `json:"output_schema,omitempty"`
	// OnLeak is the action on a result that contains a secret; empty means LeakRedact.
	OnLeak OnLeak `json:"on_leak,omitempty"`
}

// OnLeak is the action on a result that contains a secret.
type OnLeak string

// The actions on a leak.
const (
	LeakRedact OnLeak = "redact" // return the result without the secret
	LeakBlock  OnLeak = "block"  // withhold the whole result
)

// IsZero reports whether the agent declares no guardrails.
func (g Guardrails) IsZero() bool {
	return g.MaxLength == 0 && len(g.DenyPatterns) == 0 && len(g.PII) == 0 && g.OutputSchema == "" && g.OnLeak == ""
}

// ToolPolicy limits the calls of one tool.
type ToolPolicy struct {
	// HumanApproval requires a person's approval before every call.
	HumanApproval bool `json:"human_approval,omitempty"`
	// Idempotent allows the runtime to repeat a call after a crash.
	Idempotent bool  `json:"idempotent,omitempty"`
	Rate       *Rate `json:"rate_limit,omitempty"`
	Spend      *Cap  `json:"max_amount,omitempty"`
}

// Rate allows at most Count calls in any window of length Per.
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

// Cap bounds the spending of calls. Amounts are decimals in the manifest's spelling; an empty amount is no cap.
type Cap struct {
	PerCall  string `json:"per_call,omitempty"`
	PerDay   string `json:"per_day,omitempty"`
	Currency string `json:"currency,omitempty"`
}

// AmountAtMost reports whether the decimal a is at most b. An empty amount is above every other.
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
