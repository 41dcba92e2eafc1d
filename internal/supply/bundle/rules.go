package bundle

import "github.com/ambit-run/ambit/internal/manifest/diag"

// What can be wrong with a bundle.
var (
	ruleUnreadable = diag.NewError(
		"CB001", "the bundle cannot be read",
		"What is damaged, encrypted, or goes on after its end could be read in one way by a reviewer and in another by a runtime.",
		"pack it again with: ambit bundle pack DIR",
	)
	rulePath = diag.NewError(
		"CB002", "a path that leads out of the bundle, or is not plain",
		"An entry called ../x or /x would be written somewhere else on the machine that unpacks it.",
		"pack it again with: ambit bundle pack DIR",
	)
	ruleLink = diag.NewError(
		"CB003", "a link or device",
		"A link shows one thing to a reviewer and may lead to another where the bundle runs.",
		"put the file itself in its place",
	)
	ruleTooLarge = diag.NewError(
		"CB004", "the bundle is too large",
		"A bundle that grows without end when it is unpacked takes the machine down before anybody has read it.",
		"leave out what the code does not need; at most 10,000 files, 32 MiB each and 128 MiB together",
	)
	ruleTwice = diag.NewError(
		"CB005", "two entries of one name",
		"Which of the two counts depends on who unpacks it. Names that differ only in case are one on some machines.",
		"keep one of them",
	)
	ruleManifest = diag.NewError(
		"CB006", "no valid manifest of a code bundle",
		"Without findagent.json at the top, of kind code-bundle and without errors, nobody knows what the code may do.",
		"see what is wrong: ambit validate DIR/findagent.json",
	)
	ruleMissing = diag.NewError(
		"CB007", "a file that the manifest names is not there",
		"The bundle would fail when it is first called.",
		"add the file, or correct the manifest; names that begin with a dot are never part of a bundle",
	)
	ruleBuild = diag.NewError(
		"CB008", "the TypeScript entrypoint is not built, or cannot be",
		"Node does not run TypeScript, so it is built once, when the bundle is packed.",
		"mend what the message says, then: ambit bundle pack DIR",
	)
	ruleOtherBuild = diag.NewWarning(
		"CB009", "the built file is not what its source builds to",
		"What runs is the built file. If it does not come from the source beside it, reading the source says nothing. Another version of ambit can build differently too.",
		"pack it again from its source with: ambit bundle pack DIR",
	)
	ruleSecret = diag.NewError(
		"CB010", "a secret in the bundle",
		"Everybody who gets the bundle gets the secret. Credentials come from slots, and go to the hosts of the slot only.",
		"take it out and revoke it; declare a credential slot in the manifest",
	)
	ruleHost = diag.NewWarning(
		"CB011", "the code names a host that is not declared",
		"The sandbox lets a bundle reach only its allowed_hosts, so a request there fails. It may also tell what the code is really for.",
		"add it to allowed_hosts, if the code should reach it",
	)
	ruleNative = diag.NewWarning(
		"CB012", "compiled code",
		"Nobody can read it, so a review says nothing about it.",
		"leave it out, or know where it comes from",
	)
	ruleVariable = diag.NewError(
		"CB013", "a variable that belongs to the sandbox",
		"The variable decides how the runtime itself works, so the manifest may not set it.",
		"give the variable another name",
	)
	ruleSkills = diag.NewError(
		"CB015", "the skills are not those of the manifest",
		"Skills are served as prompts; one that is missing, or is another than the manifest says, is not what was reviewed.",
		"make the skills of the manifest those in the bundle, each in a SKILL.md of its own",
	)
	ruleUnscanned = diag.NewWarning(
		"CB014", "a file that could not be looked through",
		"It takes too much work to scan, so it cannot be called free of secrets.",
		"split the file, or know what is in it",
	)
)

// Rules lists what can be wrong with a bundle.
var Rules = []*diag.Rule{
	ruleUnreadable, rulePath, ruleLink, ruleTooLarge, ruleTwice, ruleManifest, ruleMissing, ruleBuild, ruleOtherBuild,
	ruleSecret, ruleHost, ruleNative, ruleVariable, ruleUnscanned, ruleSkills,
}

// Problem is one thing that is wrong with a bundle, and where.
type Problem struct {
	Code     string        `json:"code"`
	Severity diag.Severity `json:"severity"`
	// Path is within the bundle; empty for the bundle itself.
	Path string `json:"path"`
	// Line counts from 1; 0 is the whole file.
	Line    int    `json:"line"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}
