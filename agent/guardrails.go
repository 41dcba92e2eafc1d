package agent

import (
	"math/big"
	"time"
)

// Guardrails are an agent's checks on arguments and results. ambit enforces the guardrails, and the operator can add
// more.
type Guardrails struct {
	// MaxLength is the maximum size of a call's arguments in bytes. The value 0 means that there is no limit.
	MaxLength int64 `json:"max_length,omitempty"`
	// DenyPatterns lists regular expressions. A call is refused if an argument matches any of them.
	DenyPatterns []string `json:"deny_patterns,omitempty"`
	// PII lists the categories of personal data that are redacted from arguments.
	PII []string `json:"pii_redaction,omitempty"`
	// OutputSchema is the JSON Schema of results, in JSON.
	OutputSchema string `json:"output_schema,omitempty"`
	// OnLeak decides what happens to a result that contains a secret. The default is LeakRedact.
	OnLeak OnLeak `json:"on_leak,omitempty"`
	// OnResult decides whether the categories in PII are also redacted from results. By default, only arguments are
	// redacted.
	OnResult OnResult `json:"on_result,omitempty"`
	// OnInjection decides what happens to a result that contains a prompt injection. The default is InjectionMark.
	OnInjection OnInjection `json:"on_injection,omitempty"`
}

// OnLeak decides what happens to a result that contains a secret.
type OnLeak string

// The values of OnLeak.
const (
	LeakRedact OnLeak = "redact" // return the result without the secret
	LeakBlock  OnLeak = "block"  // withhold the whole result
)

// OnResult decides what happens to a result that contains personal data.
type OnResult string

// ResultRedact returns the result without the personal data.
const ResultRedact OnResult = "redact"

// OnInjection decides what happens to a result that contains a prompt injection.
type OnInjection string

// The values of OnInjection.
const (
	InjectionMark   OnInjection = "mark"   // return the result with a list of the places in its _meta
	InjectionRedact OnInjection = "redact" // return the result without the injection
	InjectionDeny   OnInjection = "deny"   // withhold the whole result
)

// InjectionActions lists the values of OnInjection. Each is stricter than the one before.
var InjectionActions = []string{string(InjectionMark), string(InjectionRedact), string(InjectionDeny)}

// IsZero reports whether the agent declares no guardrails.
func (g Guardrails) IsZero() bool {
	return g.MaxLength == 0 && len(g.DenyPatterns) == 0 && len(g.PII) == 0 && g.OutputSchema == "" && g.OnLeak == "" &&
		g.OnResult == "" && g.OnInjection == ""
}

// ToolPolicy limits the calls to one tool.
type ToolPolicy struct {
	// HumanApproval is set if a person must approve every call.
	HumanApproval bool `json:"human_approval,omitempty"`
	// Idempotent is set if ambit is allowed to repeat a call after a crash.
	Idempotent bool  `json:"idempotent,omitempty"`
	Rate       *Rate `json:"rate_limit,omitempty"`
	Spend      *Cap  `json:"max_amount,omitempty"`
}

// Rate allows at most Count calls in any window of length Per.
type Rate struct {
	Count int64         `json:"count"`
	Per   time.Duration `json:"per"`
}

// AtMost reports whether r is as strict as the other rate or stricter: r.Count must not be higher than other.Count, and
// r.Per must not be shorter than other.Per.
func (r Rate) AtMost(other Rate) bool { return r.Count <= other.Count && r.Per >= other.Per }

func (r Rate) String() string {
	for unit, d := range RateUnits {
		if d == r.Per {
			return big.NewInt(r.Count).String() + "/" + unit
		}
	}
	return big.NewInt(r.Count).String() + " per " + r.Per.String()
}

// RateUnits contains the units of rate limits with their lengths.
var RateUnits = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
}

// Cap limits the amount of money that calls spend. An amount is a decimal number as written in the manifest. An empty
// amount means that there is no limit.
type Cap struct {
	PerCall  string `json:"per_call,omitempty"`
	PerDay   string `json:"per_day,omitempty"`
	Currency string `json:"currency,omitempty"`
}

// AmountAtMost reports whether the amount a is at most the amount b. Amounts are decimal numbers. An empty amount
// means no limit, and is higher than every number.
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

// PIICategories lists the categories that Guardrails.PII can contain.
var PIICategories = []string{
	"credit_card", "email", "phone", "iban", "national_id", "ip_address", "mac_address", "passport",
	"date_of_birth", "crypto_wallet",
}
