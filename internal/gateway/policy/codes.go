package policy

// The codes of problems that Check reports.
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

// Meaning explains the code of a problem to users.
type Meaning struct{ Code, Title, Why, Fix string }

// Meanings explains every code. A test compares the list with the codes.
var Meanings = []Meaning{
	{
		NotCedar, "the policy is not valid Cedar",
		"Rules that cannot be parsed have no effect. " +
			"A running ambit keeps the last valid rules. If ambit starts with such a file, ambit allows no calls.",
		"fix the line named in the message, then run: ambit policy check",
	},
	{
		NotASchema, "policy.cedarschema is not a valid schema",
		"policy.cedarschema declares the types of arguments. " +
			"If the file cannot be parsed, ambit cannot check the rules against it.",
		"fix the file, or delete it and run: ambit policy init",
	},
	{
		NotInSchema, "a rule uses an attribute, entity or type that no call has",
		"Such a rule cannot be evaluated. A forbid rule is then treated as matching, and a permit rule permits nothing.",
		"list the names that rules can use: ambit policy init --print-schema",
	},
	{
		TwoTypes, "a rule uses an argument with two types",
		"A value has one type, so one of the comparisons always fails.",
		"use the argument with one type only, or declare its type in policy.cedarschema",
	},
	{
		NoGuard, "a rule uses an argument without checking that it exists",
		"If the argument is absent, the rule cannot be evaluated: " +
			"a forbid rule is then treated as matching, and a permit rule permits nothing.",
		"write \"context.arguments has NAME &&\" before using the argument",
	},
	{
		RawText, "a rule compares a path or URL as text",
		"The rule sees one argument in its canonical spelling. It does not see other arguments and relative paths.",
		"use a set such as context.paths_any_under or context.hosts_any_under",
	},
	{
		AllOfNone, "a permit also matches if the set that it tests is empty",
		"containsAll is true for an empty set, so a call without any path or host is permitted too.",
		"add \"!context.NAME.isEmpty() &&\" to the condition",
	},
	{
		NeverThere, "a rule tests for a spelling that never occurs",
		"Paths, hosts and databases have one canonical spelling; " +
			"a rule with any other spelling matches nothing, even if it is a forbid rule.",
		"write the path, host or database as the message shows",
	},
	{
		Unused, "a rule applies to no registered agent or tool",
		"The agent or tool that the rule names does not exist, or it has another name.",
		"list the names: ambit agents, ambit tools PATH",
	},
	{
		NoEffect, "a rule permits calls that need no permit",
		"Only GPARS agents need a permit. For agents of other dialects, rules can only forbid.",
		"delete the rule, or write a forbid rule instead",
	},
	{
		Shadowed, "a rule never decides anything",
		"Another rule already decides the same calls.",
		"delete one of the two rules",
	},
	{
		EditedGrant, "a grant was changed by hand",
		"ambit revoke removes only rules that are exactly as ambit grant wrote them. " +
			"This rule was changed, so ambit revoke keeps it.",
		"to keep the rule as your own, delete @ambit(\"grant\"); to replace it, delete the rule and run: ambit grant",
	},
	{
		ScopeUnknown, "a grant covers no tool",
		"Neither the catalogue nor config.toml maps the scope of the grant to a tool.",
		"map the scope to tools in the table [scopes] of config.toml",
	},
}
