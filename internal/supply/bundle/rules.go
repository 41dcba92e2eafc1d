package bundle

import "github.com/ambit-run/ambit/internal/manifest/diag"

// The rules of code bundles.
var (
	ruleUnreadable = diag.NewError(
		"CB001", "the bundle cannot be read",
		"A reviewer and a runtime could read an archive that is damaged, encrypted or has data after its end in different ways.",
		"pack it again with: ambit bundle pack DIR",
	)
	rulePath = diag.NewError(
		"CB002", "a path that leaves the bundle, or is not simple",
		"An entry called ../x or /x would be written somewhere else on the machine that unpacks it.",
		"pack it again with: ambit bundle pack DIR",
	)
	ruleLink = diag.NewError(
		"CB003", "a link or device",
		"A link shows one thing to a reviewer and may lead to another where the bundle runs.",
		"replace it by the file itself",
	)
	ruleTooLarge = diag.NewError(
		"CB004", "the bundle is too large",
		"Unpacking a bundle of unlimited size could exhaust the machine before a review.",
		"remove files that the code does not need; the limits are 10,000 files, 32 MiB each and 128 MiB together",
	)
	ruleTwice = diag.NewError(
		"CB005", "two entries with one name",
		"The unpacking program decides which of the two is used. Names that differ only in case are the same file on some systems.",
		"keep one of them",
	)
	ruleManifest = diag.NewError(
		"CB006", "no valid manifest of a code bundle",
		"The permissions of the code come from findagent.json at the top, of kind code-bundle and without errors.",
		"list the problems: ambit validate DIR/findagent.json",
	)
	ruleMissing = diag.NewError(
		"CB007", "a file that the manifest names is missing",
		"The bundle would fail at its first call.",
		"add the file, or correct the manifest; names that begin with a dot are never part of a bundle",
	)
	ruleBuild = diag.NewError(
		"CB008", "the TypeScript entrypoint is not built, or cannot be built",
		"Node does not run TypeScript, so it is built once, when the bundle is packed.",
		"fix the reported error, then run: ambit bundle pack DIR",
	)
	ruleOtherBuild = diag.NewWarning(
		"CB009", "the built file does not match its source",
		"The built file is what runs. If it does not match the source beside it, a review of the source is worthless. Another version of ambit may also build differently.",
		"pack it again from its source with: ambit bundle pack DIR",
	)
	ruleSecret = diag.NewError(
		"CB010", "a secret in the bundle",
		"Everyone with the bundle has the secret. Credentials belong in slots, which send them to the slot's hosts only.",
		"remove it and revoke it; declare a credential slot in the manifest",
	)
	ruleHost = diag.NewWarning(
		"CB011", "the code names a host that is not declared",
		"The sandbox lets a bundle reach only its allowed_hosts, so the request fails. The host may also show an undeclared purpose of the code.",
		"if the code should reach it, add it to allowed_hosts",
	)
	ruleNative = diag.NewWarning(
		"CB012", "compiled code",
		"People cannot read compiled code, so a review does not cover it.",
		"remove it, or verify where it comes from",
	)
	ruleVariable = diag.NewError(
		"CB013", "a variable that belongs to the sandbox",
		"The variable controls the runtime itself, so the manifest may not set it.",
		"give the variable another name",
	)
	ruleSkills = diag.NewError(
		"CB015", "the skills differ from the manifest",
		"Skills are served as prompts. A missing or different skill is not the one that was reviewed.",
		"list exactly the skills of the bundle in the manifest, each in its own SKILL.md",
	)
	ruleUnscanned = diag.NewWarning(
		"CB014", "a file that could not be scanned",
		"Scanning it takes too much work, so it may contain secrets.",
		"split the file, or review it by hand",
	)
)

// Rules lists the rules of code bundles.
var Rules = []*diag.Rule{
	ruleUnreadable, rulePath, ruleLink, ruleTooLarge, ruleTwice, ruleManifest, ruleMissing, ruleBuild, ruleOtherBuild,
	ruleSecret, ruleHost, ruleNative, ruleVariable, ruleUnscanned, ruleSkills,
}

// Problem is one problem of a bundle and its location.
type Problem struct {
	Code     string        `json:"code"`
	Severity diag.Severity `json:"severity"`
	// Path is relative to the bundle; empty for the bundle itself.
	Path string `json:"path"`
	// Line counts from 1; 0 means the whole file.
	Line    int    `json:"line"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}
