package flow

// Reason is why an argument is in doubt.
type Reason string

// The reasons for doubt.
const (
	// OnlyUntrusted means that the value, or a part of it, was seen only in untrusted text.
	OnlyUntrusted Reason = "only_untrusted"
	// AskedFor means that untrusted text asks for this action with this value.
	AskedFor Reason = "asked_for"
	// Named means that untrusted text asks for this action, such as a deletion, without naming its arguments.
	Named Reason = "named"
	// AcrossSources means that the value and the destination come from different results.
	AcrossSources Reason = "across_sources"
	// Unknown means that the value has no known origin, and that forgotten text may have contained it.
	Unknown Reason = "unknown_origin"
)

// Meaning explains a reason to users.
type Meaning struct {
	Reason          Reason
	Title, Why, Fix string
}

// Meanings explains every reason. A test compares the list with the reasons.
var Meanings = []Meaning{
	{
		OnlyUntrusted, "the value was seen only in untrusted text",
		"An agent read the value, or a part of it, in text that anyone may have written, such as a web page or a mail. " +
			"Neither a trusted field nor an approved call contained it. The journal names the call that returned the text.",
		"approve the call if the value is what you want: your agents then trust it for the rest of the session; if the " +
			"tool returns only text of your own, set \"flow\" of that tool to off in guardrails.json",
	},
	{
		AskedFor, "untrusted text asks for this action with this value",
		"The value is known from elsewhere too, but a text from outside contains it together with words that ask for the " +
			"action of this tool. This is what an injected instruction looks like.",
		"read the text in the result of the call that the journal names, and deny the call if you did not ask for it",
	},
	{
		Named, "untrusted text asks for this action",
		"A text from outside asks for the action of this tool, such as a deletion. It may name no arguments.",
		"read the text in the result of the call that the journal names, and deny the call if you did not ask for it",
	},
	{
		AcrossSources, "the value and the destination come from different results",
		"The call sends a value from one result to a destination from another result. The content of one sender would " +
			"reach another person.",
		"check that this recipient may see the value, and then approve the call",
	},
	{
		Unknown, "the value has no known origin",
		"In strict mode, every destination and identifier needs a known origin. Strict mode applies after ambit forgot " +
			"text or was restarted, while several gateways serve the principal, and with \"strict\": true in guardrails.json.",
		"approve the call if the value is what you want; to see how long untrusted text affects calls, run: " +
			"ambit why PATH TOOL",
	},
}
