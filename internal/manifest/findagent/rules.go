package findagent

import "github.com/ambit-run/ambit/internal/manifest/diag"

// The agent itself.
var (
	ruleName = diag.NewError(
		"FA001", "name has 3 to 80 characters",
		"Lists show the name, and the agent's NAME is derived from it.",
		"use 3 to 80 characters",
	)
	ruleDescription = diag.NewError(
		"FA002", "description has at most 4000 characters",
		"The description is shown where people choose an agent. Instructions for the agent belong in system_prompt.",
		"shorten it to 4000 characters",
	)
	ruleSystemPrompt = diag.NewError(
		"FA003", "system_prompt has 50 to 20,000 characters",
		"The system prompt is the agent's instructions. Below 50 characters it says too little; above 20,000 clients cut it.",
		"use 50 to 20,000 characters",
	)
	ruleManyTools = diag.NewError(
		"FA004", "at most 40 tools",
		"Models choose badly among many tools, and clients limit the number they show.",
		"keep 40 tools, or split the agent in two",
	)
	ruleExamples = diag.NewError(
		"FA005", "example_prompts lists 1 to 5 prompts",
		"Examples show a person what to ask the agent for.",
		`list 1 to 5 prompts, such as "example_prompts": ["Summarize last week."]`,
	)
	ruleNeedsAction = diag.NewError(
		"FA010", "an mcp-tool agent needs a tool with an action",
		"An mcp-tool agent serves its tools. A tool without an action is only described, so there would be nothing to serve.",
		`give a tool an "action", or use "kind": "static-recipe"`,
	)
	ruleNeedsSkills = diag.NewError(
		"FA011", "a skills-bundle needs skills_source and skills",
		"A skills bundle serves the skill files that skills_source points to, under the names that skills lists.",
		`add "skills_source": {"kind": "r2", "key": "…"} and "skills"`,
	)
	ruleNeedsCode = diag.NewError(
		"FA012", "a code-bundle needs entrypoint, runtime and mcp",
		"A code bundle needs an entrypoint to run, a runtime to run it with, and mcp for how its tools are served.",
		`add "entrypoint", "runtime" and "mcp"`,
	)
	ruleOtherKind = diag.NewWarning(
		"FA013", "a field of another kind of agent",
		"The field applies to another kind only. Here it has no effect.",
		"remove it, or change kind",
	)
	ruleRecipeActions = diag.NewWarning(
		"FA014", "actions in a static recipe",
		"A static recipe is text that people paste into a client. Tools that do something are served by an agent of kind mcp-tool or autonomous-agent.",
		`set "kind": "mcp-tool"`,
	)
	ruleBundleActions = diag.NewWarning(
		"FA015", "actions in a code bundle",
		"The tools of a code bundle are served by its code. Their actions have no effect.",
		"remove the actions",
	)
)

// Tools.
var (
	ruleToolName = diag.NewError(
		"FA020", "a tool's name may contain only letters, digits, _, - and .",
		"MCP clients call the tool by its name: 1 to 128 of these characters.",
		"use letters, digits, _, - and .",
	)
	ruleDuplicateTool = diag.NewError(
		"FA021", "two tools with one name",
		"A call names a tool, so names must be unique.",
		"give each tool its own name",
	)
	ruleSchema = diag.NewError(
		"FA022", "not a usable JSON Schema",
		"The schema checks the input or output of a tool. An unusable schema would refuse every call, or none.",
		"write a JSON Schema (2020-12)",
	)
	ruleInputType = diag.NewError(
		"FA023", "a tool's input is an object",
		"MCP clients send a tool's arguments as one object, so its input_schema must be of type object.",
		`write "type": "object" and put the arguments into "properties"`,
	)
	ruleInputUntyped = diag.NewWarning(
		"FA024", "input_schema has no type object",
		`MCP requires "type": "object" at the top of every input schema, and some clients refuse a tool without it.`,
		`add "type": "object"`,
	)
	ruleContradiction = diag.NewWarning(
		"FA025", "a tool that is both read-only and destructive",
		"readOnlyHint means that the tool changes nothing, destructiveHint that it may destroy something.",
		"set one of the two to false",
	)
	ruleReadOnlyMethod = diag.NewWarning(
		"FA026", "a read-only tool that sends a writing request",
		"readOnlyHint means that the tool changes nothing, but only GET and HEAD requests are read-only. The tool counts as writing.",
		"remove readOnlyHint, or use GET",
	)
)

// Actions.
var (
	rulePlainHTTP = diag.NewError(
		"FA030", "an unencrypted address",
		"Over plain http everyone on the network path can read and change the request, its credential and the response.",
		"use https",
	)
	ruleURL = diag.NewError(
		"FA031", "not a usable address",
		"An action's url is an absolute https address: a host, then a path and a query. Other parts are not sent, or change where the request goes.",
		`write "https://host/path?query={param}"`,
	)
	ruleHeaderName = diag.NewError(
		"FA034", "not the name of an HTTP header",
		"Header names are letters, digits and hyphens; some, such as Host and Content-Length, belong to the connection itself.",
		"use a header that the service requires",
	)
	ruleDuplicateHeader = diag.NewError(
		"FA035", "the same header twice",
		"Header names ignore case, and services disagree on which of the two they use.",
		"keep one of the two",
	)
	ruleHeaderValue = diag.NewError(
		"FA036", "a line break or control character in a header",
		"A header value is one line; a break in it would start another header.",
		"remove it",
	)
	ruleLiteralCredential = diag.NewError(
		"FA037", "a literal credential",
		"A manifest is shared with everyone who installs the agent. They would all have the credential.",
		`revoke it if it was real, declare a slot in credential_slots, and point to it with "auth_ref"`,
	)
	ruleBodyUnsent = diag.NewWarning(
		"FA038", "a body that is not sent",
		"GET and HEAD requests have no body.",
		"use POST, or remove body_template",
	)
	ruleBodyJSON = diag.NewError(
		"FA039", "body_template is not JSON",
		"The request declares a JSON body, but with its placeholders filled in the body would not be JSON.",
		"inside quotes a placeholder inserts text, outside of them a JSON value",
	)
	ruleAuthRef = diag.NewError(
		"FA040", "auth_ref names no credential slot",
		"The action would be sent without its credential.",
		"declare the slot in credential_slots",
	)
	ruleAudience = diag.NewError(
		"FA041", "the credential may not be sent to this host",
		"A slot's credential is sent only to its allowed_hosts and their subdomains. The action uses another host.",
		"if the credential is for this host, add the host to the slot's allowed_hosts",
	)
	ruleOtherAction = diag.NewWarning(
		"FA042", "a field of another type of action",
		"method, url, headers, body_template and auth_ref belong to http, template to prompt-template, agent and tool to compose. Here the field has no effect.",
		"remove it, or change the action's type",
	)
	ruleAgentName = diag.NewError(
		"FA043", "not the NAME of an agent",
		"compose calls a tool of another agent by that agent's NAME: letters, digits, _, - and .",
		`use the other agent's NAME, such as "report-builder"`,
	)
)

// Placeholders.
var (
	ruleBraces = diag.NewError(
		"FA050", "not a placeholder",
		"A placeholder is a name in single braces: a letter or _, then letters, digits, _, - and .",
		"write {name}",
	)
	ruleHostPlaceholder = diag.NewError(
		"FA051", "a placeholder in the scheme or host",
		"The caller who fills the placeholder would choose where the request and its credential go.",
		"write the host out; placeholders are allowed in the path and the query",
	)
	ruleUnbound = diag.NewError(
		"FA052", "a placeholder without a value",
		"Placeholders are filled from the tool's input. A placeholder that is not a property of input_schema has no value, so every call would fail.",
		"add it to the properties of input_schema",
	)
	ruleCredentialPlace = diag.NewError(
		"FA053", "a credential outside of the headers",
		"Addresses and bodies are logged, cached and echoed. A credential is put only into a header.",
		`put {credential} into a header, such as "Authorization": "Bearer {credential}"`,
	)
	ruleCredentialNone = diag.NewError(
		"FA054", "a credential without auth_ref",
		"{credential} is the value of the slot that auth_ref names, but there is no auth_ref.",
		`add "auth_ref"`,
	)
	ruleCredentialField = diag.NewError(
		"FA055", "a field of a credential without fields",
		`{credential.FIELD} takes one field of a JSON credential. Only a slot of type "json" has fields.`,
		`write {credential}, or set the slot's "type": "json"`,
	)
)

// Hosts.
var (
	ruleHost = diag.NewError(
		"FA060", "not the name of a host",
		"A host is a DNS name such as api.example.com, without scheme, port, path or user. It is compared label by label with the host of a request.",
		"write the host's name alone, such as api.example.com",
	)
	ruleAddress = diag.NewError(
		"FA061", "an IP address in place of a name",
		"An address can change its owner, has many spellings, and can point into the local network.",
		"use the host's name",
	)
	ruleLocalHost = diag.NewError(
		"FA062", "a name of the local network",
		"localhost, names of one label, .local and .internal mean a different machine on every network.",
		"use the service's public name",
	)
	rulePublicSuffix = diag.NewError(
		"FA063", "a whole top-level domain",
		"Anyone can register a name below a public suffix such as com or co.uk, so it limits nothing.",
		"name the owner's domain, such as example.com",
	)
	rulePrivateSuffix = diag.NewWarning(
		"FA064", "a domain below which anyone can get a name",
		"Below a domain such as github.io or herokuapp.com each name has another owner.",
		"name the intended subdomain, such as project.github.io",
	)
	ruleWildcard = diag.NewError(
		"FA065", "a wildcard in a host",
		"Hosts are not patterns. A host already covers its subdomains.",
		"remove *. at the front",
	)
)

// Credential slots.
var (
	ruleRef = diag.NewError(
		"FA070", "not a slot's ref",
		"auth_ref and the vault name the slot by its ref: a letter, then letters, digits, _, - and .",
		`use a name such as "analytics_token"`,
	)
	ruleDuplicateRef = diag.NewError(
		"FA071", "two slots with one ref",
		"auth_ref names a slot, so refs must be unique.",
		"give each slot its own ref",
	)
	ruleSlotEnv = diag.NewError(
		"FA072", "not the name of an environment variable",
		"env names the variable that the credential can be read from: capital letters, digits and _.",
		`use a name such as "ANALYTICS_TOKEN"`,
	)
	ruleDuplicateEnv = diag.NewError(
		"FA073", "two slots with one environment variable",
		"One variable has one credential, which would be sent to the hosts of both slots. Without env, the variable is the ref in capital letters.",
		`give each slot its own "env"`,
	)
	ruleAudienceMissing = diag.NewError(
		"FA074", "a credential without an audience",
		"allowed_hosts are the only hosts that a credential is sent to. Without them it could be sent anywhere.",
		`add "allowed_hosts": ["api.example.com"]`,
	)
	ruleSlotValue = diag.NewError(
		"FA075", "a credential's value in its slot",
		"A slot describes a credential; the person who installs the agent supplies it. A manifest is shared, so everyone would know the value.",
		"remove it, and revoke it if it was real; set it with: ambit secret set AGENT REF",
	)
	ruleUnusedSlot = diag.NewWarning(
		"FA076", "a slot that no action uses",
		"People would be asked for a credential that no action sends.",
		`point to it with an action's "auth_ref", or remove it`,
	)
)

// Guardrails.
var (
	ruleDenyPattern = diag.NewError(
		"FA080", "deny_patterns contains an unusable pattern",
		"Patterns are regular expressions that match in linear time (RE2), so that no input can stall the guardrail. An invalid pattern protects nothing.",
		"",
	)
	ruleDenyAll = diag.NewError(
		"FA081", "a pattern that denies everything",
		"A pattern that matches the empty text matches somewhere in every text, so every call would be denied.",
		"let the pattern require at least one character",
	)
	ruleDenyLimit = diag.NewError(
		"FA082", "too many or too long patterns",
		"Every pattern is matched against every call. At most 100 patterns of at most 1,000 bytes keep that cheap.",
		"join patterns with |, or drop some",
	)
	ruleLeakScanOff = diag.NewError(
		"FA083", "secret_leak_scan cannot be switched off",
		"A manifest can only tighten the guardrails. The scan for leaked secrets is mandatory and always runs.",
		"remove it, or set it to true",
	)
	rulePolicyTool = diag.NewError(
		"FA084", "guardrails for an unknown tool",
		"guardrails.actions is keyed by the names of the agent's tools. Under another name the guardrails have no effect.",
		"use the name of a tool that tools lists",
	)
	ruleAmount = diag.NewError(
		"FA085", "not an amount",
		"max_amount is a decimal, such as 100 or \"100.00\", or an object with per_call, per_day and currency. Amounts are compared exactly, so they are written out in full.",
		`write "max_amount": 100, or {"per_call": "100.00", "per_day": "500.00", "currency": "EUR"}`,
	)
	ruleNoAmount = diag.NewWarning(
		"FA086", "a cap on an amount that the tool does not have",
		"max_amount is compared with the amount in the tool's input, and a call without one is refused. Here every call would be refused.",
		`add "amount" to the properties of the tool's input_schema`,
	)
	ruleRate = diag.NewError(
		"FA087", "not a rate",
		"A rate is a whole number of calls in any second, minute, hour or day.",
		`write it as "10/hour"`,
	)
)

// Delivery.
var (
	ruleDelivery = diag.NewError(
		"FA090", "delivery names no way to reach the agent",
		"delivery is prompt, mcp.stdio or mcp.remote, or an object with prompt or mcp.",
		`write "delivery": "mcp.stdio", or {"mcp": {"stdio": {"command": "…"}}}`,
	)
	ruleRemoteURL = diag.NewError(
		"FA091", "not the https address of a hosted agent",
		"Clients connect to it and send their key there.",
		`write "https://host/path"`,
	)
	ruleHostedStdio = diag.NewWarning(
		"FA092", "a hosted agent that is delivered over stdio",
		"findagent-hosted agents run only on a server. A client cannot start them over stdio.",
		`use "mcp.remote", or "exec": "user-local"`,
	)
)

// Skills.
var (
	ruleSkillsKey = diag.NewError(
		"FA100", "skills_source.key is not a valid key",
		"The key is a relative path, also used as a folder beside the manifest. It must not leave that folder.",
		`write a relative path such as "skills/my-bundle"`,
	)
	ruleSkillID = diag.NewError(
		"FA101", "not a skill's id",
		"The id is the name of the skill's prompt: a lower-case letter or digit, then lower-case letters, digits, _ and -, at most 64.",
		`use an id such as "code-review"`,
	)
	ruleDuplicateSkill = diag.NewError(
		"FA102", "two skills with one id",
		"Clients request a prompt by its id, so ids must be unique.",
		"give each skill its own id",
	)
	ruleRouter = diag.NewError(
		"FA103", "router_skill_id names no skill",
		"The router is the skill that clients see first. It must be one of skills.",
		"use the id of a skill that skills lists",
	)
)

// Code bundles.
var (
	rulePath = diag.NewError(
		"FA110", "not a path within the bundle",
		"Paths are relative to the bundle and stay in it, with / between their parts on every system.",
		`write a path such as "src/agent.ts"`,
	)
	ruleExport = diag.NewError(
		"FA112", "not a name that a file can export",
		"export is the name of the function that is called.",
		`use a name such as "handler"`,
	)
	ruleRuntimeVersion = diag.NewError(
		"FA113", "not a version that a runtime can have",
		"The version is a hint from which the sandbox picks an image.",
		`write it as "20", "3.12" or ">=18"`,
	)
	ruleNativeCommand = diag.NewError(
		"FA114", "a native bundle needs a command",
		"A native bundle ships its own MCP server; command and args start it.",
		`add "command", such as "node", and "args"`,
	)
	ruleWrapCommand = diag.NewWarning(
		"FA115", "a command that is not run",
		"A wrapped bundle is called through its entrypoint. command and args have no effect.",
		`remove it, or set "mode": "native"`,
	)
	ruleEnvName = diag.NewError(
		"FA116", "not the name of a setting",
		"env lists environment variables: capital letters, digits and _.",
		`use a name such as "REPORT_LIMIT"`,
	)
	ruleDuplicateSetting = diag.NewError(
		"FA117", "the same setting twice",
		"Only one of the two descriptions can be shown.",
		"keep one of the two",
	)
	ruleEnvSecret = diag.NewError(
		"FA118", "a secret among the settings",
		"env is for settings that are not secrets; they are shown and logged. A bundle gets secrets through credential_slots, bound to their hosts.",
		"declare a slot in credential_slots",
	)
)

// Rules lists the rules of this dialect.
var Rules = []*diag.Rule{
	ruleName, ruleDescription, ruleSystemPrompt, ruleManyTools, ruleExamples, ruleNeedsAction, ruleNeedsSkills,
	ruleNeedsCode, ruleOtherKind, ruleRecipeActions, ruleBundleActions, ruleToolName, ruleDuplicateTool, ruleSchema,
	ruleInputType, ruleInputUntyped, ruleContradiction, ruleReadOnlyMethod, rulePlainHTTP, ruleURL, ruleHeaderName,
	ruleDuplicateHeader, ruleHeaderValue, ruleLiteralCredential, ruleBodyUnsent, ruleBodyJSON, ruleAuthRef,
	ruleAudience, ruleOtherAction, ruleAgentName, ruleBraces, ruleHostPlaceholder, ruleUnbound, ruleCredentialPlace,
	ruleCredentialNone, ruleCredentialField, ruleHost, ruleAddress, ruleLocalHost, rulePublicSuffix, rulePrivateSuffix,
	ruleWildcard, ruleRef, ruleDuplicateRef, ruleSlotEnv, ruleDuplicateEnv, ruleAudienceMissing, ruleSlotValue,
	ruleUnusedSlot, ruleDenyPattern, ruleDenyAll, ruleDenyLimit, ruleLeakScanOff, rulePolicyTool, ruleAmount,
	ruleNoAmount, ruleRate, ruleDelivery, ruleRemoteURL, ruleHostedStdio, ruleSkillsKey, ruleSkillID,
	ruleDuplicateSkill, ruleRouter, rulePath, ruleExport, ruleRuntimeVersion, ruleNativeCommand, ruleWrapCommand,
	ruleEnvName, ruleDuplicateSetting, ruleEnvSecret,
}
