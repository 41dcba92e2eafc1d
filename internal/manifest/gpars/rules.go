package gpars

import "github.com/ambit-run/ambit/internal/manifest/diag"

var (
	ruleUnknown = diag.NewError(
		"GP001", "a field that GPARS does not have",
		"The set of fields is closed: a manifest with a field of another name is not a GPARS manifest, and other runtimes refuse it.",
		`put your own data under "extensions", such as "extensions": {"com.example.name": …}`,
	)
	ruleVersion = diag.NewError(
		"GP002", "version must be X.Y.Z",
		"The manifest's own version is three numbers, so that two manifests of one agent can be put in order.",
		`write "version": "1.0.0"`,
	)
	ruleUntidy = diag.NewWarning(
		"GP003", "white space around an id or a scope",
		"Ids and scopes are compared character by character. A text that differs only by invisible characters matches nothing.",
		"remove the white space",
	)
	ruleExtensionKey = diag.NewWarning(
		"GP004", "an extension's key is not a reversed domain name",
		"Keys under extensions are reversed domain names, so that two parties never mean different things by one key.",
		`use a domain of your own, such as "com.example.name"`,
	)
	ruleServerID = diag.NewError(
		"GP010", "server_id is not an id that a registry can have",
		"A server_id names a server in a registry: host/name, in letters, digits and . _ ~ + : - with no white space, and @ only in front of a part.",
		`write it as the registry does, such as "registry.openmcp.org/filesystem"`,
	)
	ruleNoHost = diag.NewWarning(
		"GP011", "server_id names no registry",
		"Without a registry's host in front the id is ambiguous, so the server cannot be found unless the user configures it.",
		`put the registry's host in front, such as "registry.openmcp.org/filesystem"`,
	)
	ruleHostCase = diag.NewWarning(
		"GP012", "upper-case letters in the registry's host",
		"Server ids are compared character by character; a host in other letter case is another id to policies and catalogues.",
		"write the host in lower case",
	)
	ruleDuplicate = diag.NewError(
		"GP013", "the same server twice in one list",
		"The two entries may ask for different versions or scopes, and it is unclear which of them counts.",
		"keep one entry, with all the scopes",
	)
	ruleBothLists = diag.NewWarning(
		"GP014", "a server that is both required and optional",
		"The required entry counts and this one has no effect.",
		"remove it from one of the two lists",
	)
	ruleIncomplete = diag.NewWarning(
		"GP015", "an optional entry that does not say everything",
		"Optional servers follow the same schema as required ones. Without version any version is taken; without permission_scopes no tool is covered.",
		"give server_id, version and permission_scopes",
	)
	ruleConstraint = diag.NewError(
		"GP020", "not a version constraint",
		"The server's version is held against the constraint. A tag such as latest means another version every day, and anything else cannot be compared.",
		"write a constraint such as >=1.0.0, ^1.2.0 or 1.x",
	)
	ruleNotNPM = diag.NewWarning(
		"GP021", "a constraint that npm would not read",
		"Constraints are written as npm does. Commas, !=, => and =< are understood here, but not by every runtime.",
		"put a space between comparators, and use >= and <=",
	)
	ruleNoScopes = diag.NewWarning(
		"GP030", "no permission scopes",
		"Scopes are what the user's policy can grant. An entry without any covers no tool of its server.",
		"list the scopes that the agent needs, as the server names them",
	)
)

// Rules lists the rules of this dialect.
var Rules = []*diag.Rule{
	ruleUnknown, ruleVersion, ruleUntidy, ruleExtensionKey, ruleServerID, ruleNoHost, ruleHostCase, ruleDuplicate,
	ruleBothLists, ruleIncomplete, ruleConstraint, ruleNotNPM, ruleNoScopes,
}
