package covenant

import "github.com/ambit-run/ambit/internal/manifest/diag"

var (
	ruleID = diag.NewError(
		"CV001", "id must be name@host",
		"The id is the routing key, the subject of the journal and the owner of memory records: a name and a host with one @ between them, each of letters, digits, _, . and -.",
		`write id = "name@local"`,
	)
	rulePlainID = diag.NewWarning(
		"CV002", "an id without a host",
		"Two hosts can each have an agent of that name. Only name@host distinguishes them.",
		`add the host, such as "name@local"`,
	)
	ruleVersion = diag.NewWarning(
		"CV003", "version is not SemVer",
		"SemVer is recommended: only versions of that form have a defined order.",
		`write version = "0.1.0"`,
	)
	ruleEntryCharacters = diag.NewError(
		"CV004", "control characters in the path of the program",
		"No program has such a path. The usual cause is a backslash in double quotes, which TOML reads as an escape.",
		"write / between folders",
	)
	ruleEntryFolder = diag.NewError(
		"CV005", "entry does not name a file",
		"entry is the program's file itself. A path that ends in a slash, . or .. names a folder.",
		`write the path of the file, such as "target/release/research" or "main.py"`,
	)
	ruleEntryOutside = diag.NewWarning(
		"CV006", "entry leaves the manifest's folder",
		"A program runs in a sandbox that contains only the manifest's folder.",
		"put the program into the manifest's folder, or give an absolute path",
	)
	ruleEntryBackslash = diag.NewWarning(
		"CV007", "a backslash in the path of the program",
		"Except on Windows, a backslash is part of a file name and does not separate folders.",
		"write / between folders",
	)
	ruleNamespace = diag.NewError(
		"CV010", "an action outside the reserved namespaces",
		"Actions are granted by name. All actions start with intent., memory., identity., tool. or agent.; any other name can never be granted.",
		"start it with intent., memory., identity., tool. or agent.",
	)
	ruleAction = diag.NewError(
		"CV011", "an action with a part missing",
		"An action is a namespace and one or more names with dots between them. A namespace alone, or an empty part between two dots, is not an action.",
		"write it as tool.web_search or memory.write",
	)
	ruleActionCharacters = diag.NewWarning(
		"CV012", "an action that contains white space or *",
		"Actions are matched character by character. White space is usually a mistake, and * is not a wildcard.",
		"list each action by name",
	)
	ruleBothLists = diag.NewWarning(
		"CV013", "an action that is both required and optional",
		"A required action must be granted in any case, so the optional entry has no effect.",
		"remove it from one of the two lists",
	)
	ruleNoBudget = diag.NewWarning(
		"CV020", "a budget of 0",
		"The runtime kills a program when its time is up and stops it at its memory limit. With 0 it cannot do anything.",
		"set the amount that a task needs, or remove the field for the default",
	)
)

var ruleSection = diag.NewWarning(
	"CV030", "a section that is probably misspelt",
	"Sections that Covenant does not know are tolerated and have no effect. This one looks like a misspelling, so its limits or capabilities would not apply.",
	"check the name of the section",
)

// Rules lists the rules of this dialect.
var Rules = []*diag.Rule{
	ruleID, rulePlainID, ruleVersion, ruleEntryCharacters, ruleEntryFolder, ruleEntryOutside, ruleEntryBackslash,
	ruleNamespace, ruleAction, ruleActionCharacters, ruleBothLists, ruleNoBudget, ruleSection,
}
