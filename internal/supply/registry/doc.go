// Package registry resolves the requirements of an agent to servers that can be started. A requirement is a server id
// and a version constraint.
//
// # Where ambit looks for a server
//
// A server id is <host>/<rest>. ambit looks for the server in this order:
//
//   - In the lock file, ambit.lock, in the folder of the manifest. A locked server is used as long as it satisfies
//     the constraint, and needs no request.
//   - In the catalogue ([catalog]) on this machine.
//   - In the registry of that host, with the official MCP registry API (v0.1).
//
// If the user configured a registry for the host, that registry comes before the catalogue. The catalogue is then
// used only for servers that the registry does not know.
//
// ambit ignores versions that are deleted, deprecated or not semantic versions. It chooses the highest version that
// satisfies the constraint. It ignores the registry's "latest" mark.
//
// # What a registry can decide
//
// A registry is not trusted. It can name an npm or Python package at an exact version, a bundle (mcpb) with its
// sha256, or a public https address. These rules apply:
//
//   - If the registry gives no hash, ambit pins the package when it first fetches the package. From then on, ambit
//     uses only this content, even before a lock file exists. If the package comes from an index that this machine
//     does not use, the registry must give a hash. An index that this machine uses could have a different package of
//     the same name.
//   - Container images are refused.
//   - A registry cannot read this machine's secrets. The registry's value for a secret variable is ignored. A
//     required variable that is secret or has no value must be in the user's settings. Otherwise the server does not
//     start.
//   - Options for the runtime are refused, because they could run other code. Variables that affect loaders,
//     interpreters or network clients ([pack.MachineVariable]) are refused for the same reason.
//   - Responses are limited in bytes and in decoded size. ambit does not follow redirects. It connects only to public
//     addresses, unless the user configured the registry with a loopback address or as private.
//   - Downloads of bundles follow a few redirects. Each target must be a public https address or an address of the
//     registry itself.
//
// A lock file is not trusted either. A recipe in a lock file is trusted only if the catalogue or the registry
// confirms the recipe. An earlier confirmation on this machine is enough. A server with any other recipe gets no
// secrets from this machine and none of the user's settings. Such a server can connect only to public addresses.
// Dependencies and install scripts can come from a lock file that was not made on this machine. The package is then
// restricted in the same way, because this code runs in the package's process.
//
// Responses are cached for an hour. While a registry is unreachable, ambit uses older responses for up to 30 days,
// with a warning.
//
// # Results
//
// [Resolver.Resolve] returns a [Found] for each requirement. [Agent] returns a copy of the agent with the servers and
// their known tools. The tools come from the lock file, from an earlier start of the server on this machine, or from
// the catalogue. A requirement that cannot be met is not an error. The [Found] of this requirement contains the
// problem, and calls to its tools are refused.
package registry
