package matrix

import "github.com/ambit-run/ambit/internal/manifest/diag"

var (
	ruleSchemaVersion = diag.NewError(
		"MX001", "schema_version must be 1",
		"The version decides how the manifest is read; 1 is the only version.",
		`write "schema_version": 1`,
	)
	ruleAgent = diag.NewError(
		"MX002", "agent must be matrix://agent/<name>",
		"The journal, policies and other agents identify the agent by this name.",
		`write "agent": "matrix://agent/<name>" with a name of a-z, 0-9, _, . and -`,
	)
	ruleAllowsNothing = diag.NewWarning(
		"MX003", "the agent may call nothing",
		"allowed_side_effects lists the classes of tools that may be called. Missing or empty, it allows none, so every call will be refused.",
		`list the classes the agent needs, such as "allowed_side_effects": ["read"]`,
	)
	ruleSideEffect = diag.NewError(
		"MX004", "unknown side-effect class",
		"The gateway decides by class; it cannot decide about an unknown class.",
		"use read, write, network or shell (chain for native tools)",
	)
	ruleChainClass = diag.NewWarning(
		"MX005", "chain is the class of native tools",
		"Tools on MCP servers read, write, use the network or a shell. chain is reserved for native tools.",
		"use read, write, network or shell",
	)
	ruleAlias = diag.NewError(
		"MX010", "a server's alias may contain only a-z, 0-9, _ and -",
		"The alias is a part of every tool URI: matrix://tool/mcp/<alias>/<tool>@<version> (Q17).",
		"use lower-case letters, digits, _ and -",
	)
	ruleDuplicateAlias = diag.NewError(
		"MX011", "two servers with one alias",
		"A tool URI names a server by its alias, so aliases must be unique.",
		"give each server its own alias",
	)
	ruleSSE = diag.NewError(
		"MX012", "the SSE transport is not supported",
		"Transports are stdio and streamable HTTP; SSE-only servers are deferred (Q15).",
		`use "transport": "http" if the server also speaks streamable HTTP`,
	)
	ruleTransport = diag.NewError(
		"MX013", "transport must be stdio or http",
		"A server is either started here (stdio) or reached over streamable HTTP (http) (Q15).",
		`use "stdio" or "http"`,
	)
	ruleCommand = diag.NewError(
		"MX014", "a stdio server needs a command",
		"A stdio server is a program that is started here; without a command there is nothing to start.",
		`add "command", such as "npx", and "args"`,
	)
	ruleEndpoint = diag.NewError(
		"MX015", "an http server needs an endpoint",
		"An http server is reached at an address; without one there is nowhere to send a call.",
		`add "endpoint": "https://…"`,
	)
	ruleEndpointURL = diag.NewError(
		"MX016", "endpoint is not a usable address",
		"The endpoint is an absolute http or https URL with a host, and without a user name or password.",
		`write "https://host/path"`,
	)
	rulePlainHTTP = diag.NewWarning(
		"MX017", "an unencrypted connection to another machine",
		"Everyone on the network path can read calls, results and credentials in headers.",
		"use https",
	)
	ruleURLAlias = diag.NewWarning(
		"MX018", "url is called endpoint",
		"ambit reads url as endpoint, but other Matrix runtimes do not know it.",
		`rename "url" to "endpoint"`,
	)
	ruleOtherTransport = diag.NewWarning(
		"MX019", "a field of the other transport",
		"command, args and env belong to stdio servers, endpoint and headers to http servers. Here the field has no effect.",
		"remove it, or change the transport",
	)
	ruleVersion = diag.NewError(
		"MX020", "version is not an exact version",
		"The version is the pin in every tool URI (Q17). The meaning of a range or a tag such as latest changes over time.",
		"write the exact version, such as 2026.1.14, or sha256:<64 hex digits>",
	)
	ruleDigest = diag.NewError(
		"MX021", "package_digest is not a sha256",
		"package_digest is the sha256 of the published package (Q22): sha256: and 64 lower-case hex digits.",
		"compute it with: ambit lock",
	)
	ruleZeroDigest = diag.NewWarning(
		"MX022", "package_digest is the all-zero placeholder",
		"With a placeholder ambit cannot verify that the package that runs is the published one. It is for testing only.",
		"compute the real digest with: ambit lock",
	)
	ruleArgsVersion = diag.NewError(
		"MX023", "args name another version than the declared one",
		"Tool URIs are pinned to the declared version, but the package in args would run.",
		"make the two the same",
	)
	ruleCommandLine = diag.NewWarning(
		"MX024", "a command that contains arguments",
		"command names one program; text after a space would be part of the program's name.",
		"put each argument into args",
	)
	ruleNoTools = diag.NewError(
		"MX030", "a server without tools",
		"tools lists everything the server advertises (Q21). A server without tools is useless; a server with unlisted tools is refused at start.",
		"list every tool of the server with its side_effect_class",
	)
	ruleToolName = diag.NewError(
		"MX031", "a tool's name may contain only letters, digits, _, - and .",
		"The name is part of the tool URI, and MCP clients show it: 1 to 128 of these characters.",
		"use the name exactly as the server advertises it",
	)
	ruleDuplicateTool = diag.NewError(
		"MX032", "the same tool twice",
		"A server advertises each tool once; the second entry could give it another side-effect class.",
		"keep one of the two",
	)
	ruleEnvForm = diag.NewError(
		"MX040", "an env entry is not NAME=value",
		"env is a list of NAME=value strings for environment variables.",
		`write "NAME=$env:NAME"`,
	)
	ruleDuplicateEnv = diag.NewError(
		"MX041", "the same environment variable or header twice",
		"Only one of the two values can reach the server, and programs disagree on which.",
		"keep one of the two",
	)
	ruleLiteralCredential = diag.NewError(
		"MX042", "a literal credential",
		"Literal credentials are forbidden (Q18): manifests are content-addressed, shared and journaled.",
		"revoke it if it was real, then write $env:NAME",
	)
	ruleEnvRef = diag.NewError(
		"MX043", "not a reference that Matrix knows",
		"Credentials are referred to as $env:NAME (Q18). Any other form is sent to the server unchanged.",
		"write $env:NAME",
	)
	ruleRefPlace = diag.NewError(
		"MX044", "$env: references are allowed only in env and headers",
		"Elsewhere they are not resolved (Q18): the program would get the text $env:NAME itself. Arguments are also visible in process lists.",
		"pass it through env",
	)
	ruleLiteralSetting = diag.NewError(
		"MX045", "under strict reading every value is a reference",
		"Strict reading requires every env and header value to be an $env:NAME reference, so that a shared manifest contains no setting of one machine.",
		"write $env:NAME",
	)
	ruleHeaderName = diag.NewError(
		"MX046", "not the name of an HTTP header",
		"Header names are letters, digits and hyphens; some, such as Host and Content-Length, belong to the connection itself.",
		"write the header as the server's documentation does, such as X-Region",
	)
	ruleHeaderValue = diag.NewError(
		"MX047", "a line break in a header value",
		"A header value is one line; a break in it would start another header.",
		"remove the line break",
	)
	ruleNamespace = diag.NewError(
		"MX050", "unknown namespace of a native tool",
		"Native tools have a fixed list of namespaces (Q19).",
		"use argus, orob, plv, pofq, registry, payments, attest or chain",
	)
	ruleDuplicateNative = diag.NewError(
		"MX051", "the same native tool twice",
		"Each native tool has one URI.",
		"keep one of the two",
	)
	ruleNoServers = diag.NewWarning(
		"MX060", "the agent has no tools at all",
		"Without servers or native tools there is nothing the agent can do.",
		"add a server",
	)
)

// Rules lists the rules of this dialect.
var Rules = []*diag.Rule{
	ruleSchemaVersion, ruleAgent, ruleAllowsNothing, ruleSideEffect, ruleChainClass, ruleAlias, ruleDuplicateAlias,
	ruleSSE, ruleTransport, ruleCommand, ruleEndpoint, ruleEndpointURL, rulePlainHTTP, ruleURLAlias, ruleOtherTransport,
	ruleVersion, ruleDigest, ruleZeroDigest, ruleArgsVersion, ruleCommandLine, ruleNoTools, ruleToolName, ruleDuplicateTool, ruleEnvForm,
	ruleDuplicateEnv, ruleLiteralCredential, ruleEnvRef, ruleRefPlace, ruleLiteralSetting, ruleHeaderName,
	ruleHeaderValue, ruleNamespace, ruleDuplicateNative, ruleNoServers,
}
