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
		"SemVer is recommended: only versions of that form can be put in order by everybody.",
		`write version = "0.1.0"`,
	)
	ruleEntryCharacters = diag.NewError(
		"CV004", "control characters in the path of the program",
		"No program has such a path. It is mostly a backslash in double quotes, which TOML takes for the start of an escape.",
		"write / between folders",
	)
	ruleEntryFolder = diag.NewError(
		"CV005", "entry names no file",
		"entry is the program's file itself. A path that ends in a slash, in . or in .. is that of a folder.",
		`write the path of the file, such as "target/release/research" or "main.py"`,
	)
	ruleEntryOutside = diag.NewWarning(
		"CV006", "entry leads out of the manifest's folder",
		"A program runs in a sandbox that sees the manifest's own folder. What lies outside of it is not there.",
		"put the program into the manifest's folder, or give an absolute path",
	)
	ruleEntryBackslash = diag.NewWarning(
		"CV007", "a backslash in the path of the program",
		"Outside of Windows a backslash is a part of a file's name, not what separates folders.",
		"write / between folders",
	)
	ruleNamespace = diag.NewError(
		"CV010", "an action outside the reserved namespaces",
		"Actions are granted by name. All actions start with intent., memory., identity., tool. or agent.; any other name can never be granted.",
		"start it with intent., memory., identity., tool. or agent.",
	)
	ruleAction = diag.NewError(
		"CV011", "an action with a part missing",
		"An action is a namespace and one or more names with dots between them. A namespace alone, or nothing between two dots, names no action.",
		"write it as tool.web_search or memory.write",
	)
	ruleActionCharacters = diag.NewWarning(
		"CV012", "an action with white space or * in it",
		"Actions are matched character by character. White space is mostly a slip, and * stands for itself, not for every action.",
		"name each action by itself",
	)
	ruleBothLists = diag.NewWarning(
		"CV013", "an action that is both required and optional",
		"A required action must be held whatever the other list says, so the optional entry has no effect.",
		"remove it from one of the two lists",
	)
	ruleNoBudget = diag.NewWarning(
		"CV020", "a budget of nothing",
		"The runtime kills a program when its time is up and stops it at its memory limit. With 0 it never gets anything done.",
		"give it what a task needs, or leave the field out for the default",
	)
)

var ruleSection = diag.NewWarning(
	"CV030", "a section whose name is nearly that of another",
	"Sections that Covenant does not know are tolerated and have no effect. This one looks like a misspelling, and then its limits or capabilities would not hold.",
	"check the name of the section",
)

// Rules lists the rules of this dialect.
var Rules = []*diag.Rule{
	ruleID, rulePlainID, ruleVersion, ruleEntryCharacters, ruleEntryFolder, ruleEntryOutside, ruleEntryBackslash,
	ruleNamespace, ruleAction, ruleActionCharacters, ruleBothLists, ruleNoBudget, ruleSection,
}
