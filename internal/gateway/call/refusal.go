// Package call defines the types that all parts of the gateway share: a [Call], its [Result], and its [Refusal] if
// the call was denied or failed.
//
// Refusal codes are never removed or renamed, because clients, journals and scripts depend on them. [Meanings]
// explains each code.
package call

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Code identifies why a call was refused or failed.
type Code string

// The refusal codes.
const (
	UnpinnedTool             Code = "unpinned_tool"
	InvalidURI               Code = "invalid_uri"
	UnknownTool              Code = "unknown_tool"
	VersionMismatch          Code = "version_mismatch"
	SideEffectDenied         Code = "side_effect_denied"
	NotInSkillAllowlist      Code = "not_in_skill_allowlist"
	CapabilityMissing        Code = "capability_missing"
	ScopeNotGranted          Code = "scope_not_granted"
	PolicyDenied             Code = "policy_denied"
	InputTooLong             Code = "input_too_long"
	InputInvalid             Code = "input_invalid"
	DeniedPattern            Code = "denied_pattern"
	RateLimited              Code = "rate_limited"
	AmountExceeded           Code = "amount_exceeded"
	ApprovalDenied           Code = "approval_denied"
	ApprovalExpired          Code = "approval_expired"
	CredentialMissing        Code = "credential_missing"
	HostNotAllowed           Code = "host_not_allowed"
	AddressBlocked           Code = "address_blocked"
	SecretLeak               Code = "secret_leak"
	OutputInvalid            Code = "output_invalid"
	ServerUnavailable        Code = "server_unavailable"
	ServerDrifted            Code = "server_drifted"
	IsolationUnavailable     Code = "isolation_unavailable"
	TimedOut                 Code = "timed_out"
	ProgramFailed            Code = "program_failed"
	OutcomeUnknown           Code = "outcome_unknown"
	NativeToolNotImplemented Code = "native_tool_not_implemented"
	StoreUnavailable         Code = "store_unavailable"
)

// Meaning explains a code to a person.
type Meaning struct {
	Code  Code
	Title string
	Why   string
	Fix   string
	// Command is a shell command that is shown after Fix.
	Command diag.Command
}

func meaningOf(code Code) Meaning {
	if i := slices.IndexFunc(Meanings, func(m Meaning) bool { return m.Code == code }); i >= 0 {
		return Meanings[i]
	}
	return Meaning{}
}

// codesText has three lines for each code: the code with a title, the reason, and the fix.
//
//go:embed codes.txt
var codesText string

// Meanings explains every code.
var Meanings = readMeanings()

func readMeanings() (all []Meaning) {
	// These shell commands are shown after the fixes.
	verbs := map[Code]string{
		UnpinnedTool: "tools", InvalidURI: "tools", UnknownTool: "tools", VersionMismatch: "tools", ServerDrifted: "lock",
	}
	for section := range strings.SplitSeq(strings.TrimSpace(codesText), "\n\n") {
		lines := strings.Split(section, "\n")
		code, title, _ := strings.Cut(lines[0], " ")
		m := Meaning{Code: Code(code), Title: title, Why: lines[1], Fix: lines[2]}
		m.Command = diag.Command{Verb: verbs[m.Code]}
		all = append(all, m)
	}
	return all
}
