// Package call has the types that every part of the gateway shares: a [Call], its
// [Result], and the [Refusal] of a call that was denied or failed.
//
// Refusal codes are a closed list that only grows: they cross the wire, journals
// contain them and scripts test for them. [Meanings] explains each code.
package call

import (
	"slices"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Code is why a call was refused or failed.
type Code string

// The codes.
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
	// Command completes Fix.
	Command diag.Command
}

func meaningOf(code Code) Meaning {
	if i := slices.IndexFunc(Meanings, func(m Meaning) bool { return m.Code == code }); i >= 0 {
		return Meanings[i]
	}
	return Meaning{}
}

// Meanings explains every code.
var Meanings = []Meaning{
	{
		Code: UnpinnedTool, Title: "the tool URI has no exact version",
		Why: "A URI without @version resolves to the newest version, which may differ from the one that was reviewed.",
		Fix: "call matrix://tool/mcp/<alias>/<tool>@<version>; list the URIs", Command: diag.Command{Verb: "tools"},
	},
	{
		Code: InvalidURI, Title: "the text is not a tool URI",
		Why: "A tool URI has the form matrix://tool/mcp/<alias>/<tool>@<version> or " +
			"matrix://tool/<namespace>/<tool>@<version>.",
		Fix: "copy the URI from", Command: diag.Command{Verb: "tools"},
	},
	{
		Code: UnknownTool, Title: "the manifest declares no such tool",
		Why: "An agent can call only the tools that its manifest declares.",
		Fix: "list its tools", Command: diag.Command{Verb: "tools"},
	},
	{
		Code: VersionMismatch, Title: "the URI pins a version that the manifest does not declare",
		Why: "The manifest declares the tool at another version.",
		Fix: "change the manifest, or use the URI from", Command: diag.Command{Verb: "tools"},
	},
	{
		Code: SideEffectDenied, Title: "the tool's side-effect class is not allowed",
		Why: "allowed_side_effects lists the classes that the agent may use, and this tool's class is not on the list.",
		Fix: "add the class to allowed_side_effects if the agent should have it",
	},
	{
		Code: NotInSkillAllowlist, Title: "the skill does not list the tool",
		Why: "While a skill is in use, only the tools in its §TOOLS section may be called.",
		Fix: "add the tool's URI to the §TOOLS section",
	},
	{
		Code: CapabilityMissing, Title: "the caller lacks a capability",
		Why: "The agent requires capabilities of its callers. The caller does not hold one of them, or it " +
			"expired or was revoked.",
		Fix: "grant it: ambit grant PRINCIPAL ACTION",
	},
	{
		Code: ScopeNotGranted, Title: "a scope that the call needs is not granted",
		Why: "The manifest only requests scopes. The user's policy grants them.",
		Fix: "grant it: ambit grant AGENT --server ID --scope S",
	},
	{
		Code: PolicyDenied, Title: "the user's policy forbids the call",
		Why: "A forbid rule matched, or could not be evaluated, which counts as a match.",
		Fix: "change the rule that the message names; check the policy file: ambit policy check",
	},
	{
		Code: InputTooLong, Title: "the arguments are too large",
		Why: "The arguments exceed max_length. ambit refuses such arguments and never truncates them.",
		Fix: "send less, or raise max_length in the manifest",
	},
	{
		Code: InputInvalid, Title: "the arguments do not match the tool's schema",
		Why: "The arguments are not valid JSON, have duplicate keys, or do not match input_schema.",
		Fix: "send arguments that match the schema",
	},
	{
		Code: DeniedPattern, Title: "the arguments match a denied pattern",
		Why: "A deny pattern of the manifest or of the operator matched the arguments, as sent or after normalisation.",
		Fix: "change the arguments, or the pattern if it is wrong",
	},
	{
		Code: RateLimited, Title: "the tool was called too often",
		Why: "The tool reached its limit of calls in the window.",
		Fix: "wait for the time in retry_after",
	},
	{
		Code: AmountExceeded, Title: "the call would spend more than allowed",
		Why: "The amount exceeds the limit per call or per day, or is not a decimal number.",
		Fix: "spend less, or raise max_amount in the manifest",
	},
	{
		Code: ApprovalDenied, Title: "the call was not approved",
		Why: "The tool needs a person's approval. The approver refused, no approver is available, or the " +
			"caller's key or token ended while the call waited.",
		Fix: "call again once the approver agrees; if a key or token ended, call again with a valid one",
	},
	{
		Code: ApprovalExpired, Title: "the approval request expired",
		Why: "The tool needs a person's approval, and no answer came before the request expired.",
		Fix: "call again, and approve it while it waits: ambit approvals",
	},
	{
		Code: CredentialMissing, Title: "a credential is missing",
		Why: "The call needs a secret that is neither in the vault nor in the environment.",
		Fix: "store it: ambit secret set AGENT REF, or set the environment variable that the message names",
	},
	{
		Code: HostNotAllowed, Title: "the credential does not allow the destination",
		Why: "A credential is sent only to the hosts that its slot allows.",
		Fix: "check the URL; if the host is right, add it to the slot's allowed_hosts",
	},
	{
		Code: AddressBlocked, Title: "the host resolves to a blocked address",
		Why: "Private, loopback, link-local and metadata addresses are refused, so that an agent cannot reach " +
			"the network that it runs in.",
		Fix: "use a public host; for development on one machine: --allow-loopback-http",
	},
	{
		Code: SecretLeak, Title: "the result contains a secret",
		Why: "The scan of the result found a credential, and the result was withheld.",
		Fix: "fix the tool that returned it; the journal names the rule, never the secret",
	},
	{
		Code: OutputInvalid, Title: "the result does not match its schema",
		Why: "The result does not match the declared output schema, or has a duplicate key and is ambiguous.",
		Fix: "fix the tool or the schema",
	},
	{
		Code: ServerUnavailable, Title: "the tool server is unavailable",
		Why: "The server could not be started or reached, or it exited and did not restart.",
		Fix: "run its command or open its address by hand, and read its output",
	},
	{
		Code: ServerDrifted, Title: "the tool server differs from its declaration",
		Why: "The server advertises other tools than declared, or its definitions or package differ from the lock.",
		Fix: "review the difference with ambit verify, then accept it", Command: diag.Command{Verb: "lock"},
	},
	{
		Code: IsolationUnavailable, Title: "the requested isolation is unavailable",
		Why: "Isolation is never downgraded: if the tier is unavailable, nothing runs.",
		Fix: "install the parts that the message names, or see: ambit doctor",
	},
	{
		Code: TimedOut, Title: "the call timed out",
		Why: "The tool did not answer within its time limit.",
		Fix: "call again if that is safe, or raise timeout_ms",
	},
	{
		Code: ProgramFailed, Title: "the program broke its contract",
		Why: "The program wrote no answer, more than one, an invalid one, or exited with an error; see reason.",
		Fix: "run it by hand with one line of JSON on standard input",
	},
	{
		Code: OutcomeUnknown, Title: "the outcome of the call is unknown",
		Why: "The call was sent, and a crash, timeout or cancellation came before its answer. ambit does not " +
			"send it again, because the tool could act twice.",
		Fix: "check the other side, then settle the call; list such calls: ambit journal show --unknown",
	},
	{
		Code: NativeToolNotImplemented, Title: "native tools cannot be called yet",
		Why: "native_tools is reserved: native tools are declared and listed, and every call is refused.",
		Fix: "use a tool on a server",
	},
	{
		Code: StoreUnavailable, Title: "the store is unavailable",
		Why: "A call that cannot be journaled is not made: the store is full, locked, missing, or of a newer version.",
		Fix: "see the message; ambit doctor checks the store",
	},
}
