package policy

// The codes of problems.
const (
	NotCedar     = "syntax"
	NotASchema   = "schema"
	NoGuard      = "no_guard"
	NotInSchema  = "not_in_schema"
	TwoTypes     = "two_types"
	Unused       = "unused"
	Shadowed     = "shadowed"
	NoEffect     = "no_effect"
	RawText      = "raw_text"
	AllOfNone    = "all_of_none"
	NeverThere   = "never_there"
	EditedGrant  = "edited_grant"
	ScopeUnknown = "scope_unmapped"
)

// Meaning explains the code of a problem to a person.
type Meaning struct{ Code, Title, Why, Fix string }

// Meanings explains every code. A test holds the list to the codes.
var Meanings = []Meaning{
	{NotCedar, "the policy is not Cedar", "Rules that cannot be read count for nothing. Where ambit runs, the last good ones stay in force; where it starts, nothing is allowed.", "mend the place that is named; ambit policy check tells when it is right"},
	{NotASchema, "policy.cedarschema is not a schema", "The types of arguments stand there, and rules cannot be held to a file that cannot be read.", "mend it, or take it away: ambit policy init writes it anew"},
	{NotInSchema, "a rule speaks of what is not there", "An attribute, an entity or a type that no call has makes the rule fail: a forbid that fails forbids, a permit that fails permits nothing.", "see what rules can speak of: ambit policy init --print-schema"},
	{TwoTypes, "a rule uses an argument in two ways", "A value has one type, so that one of the comparisons always fails.", "compare it in one way, or name its type in policy.cedarschema"},
	{NoGuard, "a rule uses an argument with no has before it", "Where the argument is absent the rule fails: a forbid then forbids, and a permit permits nothing.", "write context.arguments has NAME && before it"},
	{RawText, "a rule compares a path or an address as it is spelt", "The same place has many spellings, such as /data/../etc for /etc, and the rule knows one.", "use the companions: context.paths, context.hosts and those beside them"},
	{AllOfNone, "a rule permits calls in which the set is empty", "All of an empty set lie wherever the rule wants, so a call without any path or host is permitted too.", "add !context.NAME.isEmpty() &&"},
	{NeverThere, "a rule looks for a spelling that never comes", "Paths and hosts are held in one spelling each; a rule with another matches nothing, also if it forbids.", "write the place as the message says"},
	{Unused, "a rule applies to nothing that is registered", "Its agent or its tool is not there, or is spelt otherwise.", "see what there is: ambit agents, ambit tools PATH"},
	{NoEffect, "a rule permits what needs no permit", "Only GPARS agents need one; for others rules can only forbid.", "take it out, or forbid what should not be done"},
	{Shadowed, "a rule never decides anything", "Another one decides the same calls before it can.", "take one of them out"},
	{EditedGrant, "a grant was changed by hand", "ambit revoke takes out only what ambit grant wrote, and leaves this one alone.", "take out @ambit(\"grant\") if the rule is yours now, or make the grant anew"},
	{ScopeUnknown, "a grant covers no tool", "Its scope is mapped to no tool, neither by the catalogue nor by config.toml.", "map it in config.toml, in the table scopes"},
}
