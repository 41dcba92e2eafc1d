// Package call has the types that every part of the gateway shares.
//
// A call that may not happen, or that failed, ends in a [Refusal]. Its codes
// are a closed list that only grows: they cross the wire, are in journals
// and are what scripts test for. Each code has one meaning, and [Meanings]
// says it in words.
package call

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
}

// Meanings explains every code.
var Meanings = []Meaning{
	{UnpinnedTool, "the tool URI names no exact version", "A URI without @version means whatever is there today; what was reviewed may be something else.", "call matrix://tool/mcp/<alias>/<tool>@<version>; ambit tools PATH prints the URIs"},
	{InvalidURI, "the text is not a tool URI", "It is of neither form: matrix://tool/mcp/<alias>/<tool>@<version> or matrix://tool/<namespace>/<tool>@<version>.", "copy the URI from: ambit tools PATH"},
	{UnknownTool, "the manifest declares no such tool", "An agent can call only what its manifest declares.", "see what it declares: ambit tools PATH"},
	{VersionMismatch, "the URI pins another version than the manifest declares", "The tool exists, but at another version than the one that was asked for.", "use the URI from ambit tools PATH, or change the manifest"},
	{SideEffectDenied, "the tool's side-effect class is not allowed", "allowed_side_effects lists the classes that the agent may use; this tool's is not among them.", "add the class to allowed_side_effects, if the agent should have it"},
	{NotInSkillAllowlist, "the skill does not list the tool", "A skill's §TOOLS section names the only tools that may be called while it is in use.", "add the tool's URI to the §TOOLS section"},
	{CapabilityMissing, "whoever gave the work lacks a capability", "The agent requires capabilities of whoever dispatches it, and one is not held, expired or revoked.", "grant it: ambit grant PRINCIPAL ACTION"},
	{ScopeNotGranted, "a scope that the call needs is not granted", "The manifest's scopes are requirements; only the user's policy grants them.", "grant it: ambit grant AGENT --server ID --scope S"},
	{PolicyDenied, "the user's policy forbids the call", "A forbid rule matched, or could not be evaluated, which counts as matched.", "change the rule that the message names; what is wrong with the file itself: ambit policy check"},
	{InputTooLong, "the arguments are larger than allowed", "A cap on the bytes of the arguments was exceeded; they are refused, never cut.", "send less, or raise max_length in the manifest"},
	{InputInvalid, "the arguments do not fit the tool's schema", "The arguments are not valid JSON, have duplicate keys, or do not match input_schema.", "send arguments that match the schema"},
	{DeniedPattern, "the arguments match a denied pattern", "A deny pattern of the manifest or of the operator matched the arguments, as written or normalised.", "change the arguments; if the pattern is wrong, change the pattern"},
	{RateLimited, "the tool was called too often", "The rate limit allows so many calls in any window of its length, and that many have been made.", "wait as long as retry_after says"},
	{AmountExceeded, "the call would spend more than allowed", "The amount is above the cap of one call or of the day, or could not be read as a decimal.", "spend less, or raise max_amount in the manifest"},
	{ApprovalDenied, "nobody lets the call be made", "The tool needs a person's approval, and it was refused, or there is nobody who can give it. Or the key or token of whoever asked ended while the call waited.", "call again once whoever refused it agrees; after the end of a key, call again with one that is good"},
	{ApprovalExpired, "nobody answered in time", "The tool needs a person's approval, and none came before the request expired.", "call again, and approve it while it waits: ambit approvals"},
	{CredentialMissing, "a credential is not there", "The call needs a secret that is neither in the vault nor in the environment.", "store it: ambit secret set AGENT REF, or set the environment variable that the message names"},
	{HostNotAllowed, "the destination is not in the credential's audience", "A credential is attached only towards the hosts its slot allows.", "check the URL; if the host is right, add it to the slot's allowed_hosts"},
	{AddressBlocked, "the host resolves to an address that is off limits", "Private, loopback, link-local and metadata addresses are refused, so that an agent cannot reach into the network it runs in.", "use a public host; for development on one machine there is --allow-loopback-http"},
	{SecretLeak, "the result holds a secret", "The scan that every result passes found a credential in it, and the result was withheld.", "mend the tool that returned it; the journal names the rule, never the secret"},
	{OutputInvalid, "the result does not fit its schema", "The result does not match the declared output schema, or says one thing twice, so that it could be read in two ways.", "mend the tool, or the schema"},
	{ServerUnavailable, "the tool server is not there", "The server could not be started or reached, or it ended and did not come back.", "see what it says when its command is run, or its address opened, by hand"},
	{ServerDrifted, "the tool server is not what was declared", "The server advertises other tools than declared, or its definitions or package differ from the lock.", "see the difference: ambit verify PATH; accept it with: ambit lock PATH"},
	{IsolationUnavailable, "the isolation that was asked for cannot be given here", "Isolation is never downgraded: if the tier cannot be had, nothing runs.", "install what the message names, or see: ambit doctor"},
	{TimedOut, "the call took too long", "The tool did not answer within its time limit.", "call again if that is safe, or raise timeout_ms"},
	{ProgramFailed, "the program did not answer as its contract says", "The program wrote no answer, more than one, an invalid one, or ended with an error; reason says which.", "run it by hand with one JSON line on standard input"},
	{OutcomeUnknown, "nobody knows whether the call was carried out", "The call was sent, and a crash, timeout or cancellation came before its answer. It is not sent again, since that could do it twice.", "find out on the other side, then settle it; listed by: ambit journal show --unknown"},
	{NativeToolNotImplemented, "native tools cannot be called yet", "native_tools is a reserved slot: such tools are declared and listed, and refuse every call.", "use a tool on a server"},
	{StoreUnavailable, "what happens cannot be kept", "Nothing is called that cannot be journaled: the store is full, locked, gone, or of a newer version.", "see what the message says about the store; ambit doctor checks it"},
}
