package diag

// The rules that all dialects share: AM0xx for the file, AM1xx for its content.
var (
	TooLarge = NewError(
		"AM002", "the file is too large",
		"A manifest describes an agent; one of many megabytes is a mistake or an attempt to exhaust memory, so it is not read.",
		"keep a manifest under 16 MiB",
	)
	NotUTF8 = NewError(
		"AM003", "the file is not UTF-8",
		"JSON and TOML are UTF-8 by definition. Bytes in another encoding would be read differently by different programs.",
		"save the file as UTF-8",
	)
	ByteOrderMark = NewWarning(
		"AM004", "the file starts with a byte order mark",
		"Some JSON readers refuse it, and the digest of the file's bytes differs from that of the same text without it.",
		"save the file as UTF-8 without a byte order mark",
	)
	BadJSON = NewError(
		"AM005", "the file is not valid JSON",
		"After a syntax error the rest of the file may be misread.",
		"",
	)
	BadTOML = NewError(
		"AM006", "the file is not valid TOML",
		"After a syntax error the rest of the file may be misread.",
		`write key = "text" with text in quotes, true and false in lower case, and tables as [name]`,
	)
	Comment = NewError(
		"AM007", "JSON has no comments",
		"Manifests are strict JSON, so that every reader sees the same content.",
		"remove the comment; if the dialect has a description field, explain there",
	)
	TrailingComma = NewError(
		"AM008", "a comma with nothing after it",
		"Manifests are strict JSON, so that every reader sees the same content.",
		"remove the comma",
	)
	DuplicateKey = NewError(
		"AM009", "the same key twice in one object",
		"Parsers disagree on which of the two counts. A reviewer could approve one and the runtime could use the other.",
		"keep one of the two",
	)
	TooDeep = NewError(
		"AM010", "nested too deeply",
		"No manifest needs more than 100 levels; a deeper one is a mistake or an attempt to exhaust memory.",
		"nest at most 100 levels",
	)
	TooManyValues = NewError(
		"AM011", "too many values",
		"A manifest with more than a million values is a mistake or an attempt to exhaust memory.",
		"keep a manifest under 1,000,000 values",
	)
	InexactNumber = NewError(
		"AM012", "a number that not every parser represents exactly",
		"Most parsers read JSON numbers as doubles. Beyond 2^53, or past 17 digits, two different numbers become one, and a digest or a limit changes its value.",
		"use a smaller number, or a string",
	)
	LoneSurrogate = NewError(
		"AM013", "half of a surrogate pair",
		"The escape is half a character. Some parsers replace it, some drop it, some refuse it.",
		"write the character itself, or both halves of the pair",
	)
	NotObject = NewError(
		"AM015", "a manifest is one object",
		"Every dialect is a JSON object (or a TOML document) at the top.",
		"put the manifest's fields into one { … }",
	)
	Empty = NewError(
		"AM016", "the file is empty",
		"An empty file describes no agent.",
		"start from a valid manifest: ambit new NAME",
	)
	UnknownDialect = NewError(
		"AM020", "not a manifest in any known dialect",
		"The dialect is recognised by the keys that only it has: Matrix schema_version, servers, allowed_side_effects; GPARS required_mcp_servers; FindAgent system_prompt, example_prompts, credential_slots; Covenant is TOML with [agent].",
		"add the fields of your dialect, or name it with --dialect",
	)
	MixedDialects = NewError(
		"AM021", "keys of more than one dialect",
		"The file has keys that only one dialect has, and keys that only another has; reading it as either would silently ignore the rest.",
		"use one dialect, or name it with --dialect",
	)
	TooMany = NewError(
		"AM030", "too many problems to show",
		"Only the first 10,000 problems of a file are listed.",
		"fix the problems that are shown and validate again",
	)

	WrongType = NewError(
		"AM101", "the wrong type of value",
		"The field has a value of a type that it cannot have.",
		"",
	)
	Missing = NewError(
		"AM102", "a required field is missing",
		"The dialect requires the field; without it the agent cannot be run or checked.",
		"",
	)
	UnknownField = NewWarning(
		"AM103", "a field that the dialect does not know",
		"An unknown field has no effect. If it is misspelt, the intended field is missing.",
		"remove it, or check its spelling",
	)
	NotInEnum = NewError(
		"AM104", "not one of the allowed values",
		"The field allows a fixed list of words.",
		"",
	)
	EmptyText = NewError(
		"AM105", "must not be empty",
		"The field requires a value.",
		"",
	)
	OutOfRange = NewError(
		"AM106", "a number outside its range",
		"The field allows whole numbers within a range.",
		"",
	)
	Repeated = NewWarning(
		"AM107", "the same entry twice in one list",
		"The second entry has no effect; another entry may have been intended.",
		"remove the second entry",
	)
	Reserved = NewError(
		"AM108", "a name that is reserved for ambit",
		"Sign-ins and credentials of stores are stored under the name ambit. An agent of that name would have access to them.",
		"give the agent another name",
	)
	SecretValue = NewError(
		"AM110", "a value that looks like a secret",
		"Manifests are shared, journaled and content-addressed: everyone who sees the manifest knows the secret.",
		"revoke it, then refer to it: $env:NAME in Matrix, a credential slot in FindAgent",
	)
	HiddenText = NewWarning(
		"AM111", "invisible or direction-changing characters",
		"Such characters hide text from people that programs and models still read, or change the order in which it is shown.",
		"remove the invisible characters",
	)
)

// Shared lists the rules of this file.
var Shared = []*Rule{
	TooLarge, NotUTF8, ByteOrderMark, BadJSON, BadTOML, Comment, TrailingComma, DuplicateKey, TooDeep, TooManyValues,
	InexactNumber, LoneSurrogate, NotObject, Empty, UnknownDialect, MixedDialects, TooMany, WrongType, Missing,
	UnknownField, NotInEnum, EmptyText, OutOfRange, Repeated, Reserved, SecretValue, HiddenText,
}
