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

// Meanings explains every code. A test compares the list with the codes.
var Meanings = []Meaning{
	{
		NotCedar, "the policy is not valid Cedar",
		"Rules that cannot be parsed have no effect. A running ambit keeps the last good rules; a starting one allows nothing.",
		"fix the place that the message names, then run ambit policy check",
	},
	{
		NotASchema, "policy.cedarschema is not a valid schema",
		"It declares the types of arguments, and rules cannot be checked against a file that cannot be parsed.",
		"fix it, or delete it and run ambit policy init",
	},
	{
		NotInSchema, "a rule uses an attribute, entity or type that no call has",
		"Such a rule fails: a forbid that fails forbids, a permit that fails permits nothing.",
		"list what rules can use: ambit policy init --print-schema",
	},
	{
		TwoTypes, "a rule uses an argument as two types",
		"A value has one type, so one of the comparisons always fails.",
		"compare the argument in one way, or declare its type in policy.cedarschema",
	},
	{
		NoGuard, "a rule uses an argument without a has before it",
		"If the argument is absent the rule fails: a forbid then forbids, and a permit permits nothing.",
		"write context.arguments has NAME && before it",
	},
	{
		RawText, "a rule compares a path or URL as text",
		"Only the canonical spelling reaches the rule, but other arguments and relative paths pass by it.",
		"use context.paths_any_under, context.hosts_any_under and the like",
	},
	{
		AllOfNone, "a rule permits calls in which the set is empty",
		"An empty set is under every folder, so a call without any path or host is permitted too.",
		"add !context.NAME.isEmpty() &&",
	},
	{
		NeverThere, "a rule looks for a spelling that never occurs",
		"Paths, hosts and databases have one canonical spelling; a rule with another one matches nothing, even if it forbids.",
		"write the place as the message shows",
	},
	{
		Unused, "a rule applies to nothing that is registered",
		"Its agent or its tool does not exist, or has another name.",
		"list the names: ambit agents, ambit tools PATH",
	},
	{
		NoEffect, "a rule permits calls that need no permit",
		"Only GPARS agents need one; for others rules can only forbid.",
		"delete the rule, or write a forbid",
	},
	{
		Shadowed, "a rule never decides anything",
		"Another rule decides the same calls before it can.",
		"delete one of them",
	},
	{
		EditedGrant, "a grant was changed by hand",
		"ambit revoke removes only rules exactly as ambit grant wrote them, and keeps this one.",
		"delete @ambit(\"grant\") to keep the rule as your own, or grant again",
	},
	{
		ScopeUnknown, "a grant covers no tool",
		"Neither the catalogue nor config.toml maps its scope to a tool.",
		"map it in config.toml, in the table scopes",
	},
}
