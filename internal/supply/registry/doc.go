// Package registry resolves the requirements of an agent, each a server id and a version
// constraint, to servers that can be started.
//
// # Where a server is looked up
//
// A server id is <host>/<rest>. It is looked up in this order:
//
//   - ambit.lock beside the manifest. A locked server stays as long as it satisfies the
//     constraint, and needs no request.
//   - the catalogue ([catalog]) on this machine.
//   - the registry of that host, by the official MCP registry API (v0.1).
//
// A registry that the user configured for a host comes before the catalogue, which then
// serves only the servers that the registry does not know.
//
// Versions that are deleted, deprecated or not semantic versions are ignored. Of the
// versions that satisfy the constraint the newest is chosen, by comparing versions;
// the registry's "latest" mark does not count.
//
// # What a registry may decide
//
// A registry is not trusted. It may name a package of npm or the Python index at an exact
// version, a bundle (mcpb) with its sha256, or a public https address. These rules apply:
//
//   - Without a hash from the registry, the package that was fetched first is pinned and
//     runs from then on, even before a lock exists. A package from an index that this
//     machine does not use must have a hash, because the local index may have another
//     package of that name.
//   - Container images are refused.
//   - A registry cannot read this machine's secrets. If it marks a variable as secret or
//     required, the value comes from the user's settings or the server does not start.
//   - Options for the runtime are refused, since they could run other code. So are
//     variables that affect loaders, interpreters or network clients
//     ([pack.MachineVariable]).
//   - Answers are limited in bytes and in decoded size. Redirects are not followed, and
//     only public addresses are dialled, unless the user configured the registry on this
//     machine or as private.
//   - Downloads of bundles follow a few redirects. Each target must be a public https
//     address or the registry's own.
//
// A lock is not trusted either. A recipe in it is trusted if the catalogue or the registry
// gives the same one, now or earlier on this machine. Any other recipe gets no secret of
// this machine, none of the user's settings, and public addresses only. The same holds for
// a package with dependencies or install scripts from a lock that was not made here: they
// are code in the same process.
//
// Answers are cached for an hour. While a registry is unreachable, older answers are used
// for up to a month, with a warning.
//
// # Results
//
// [Resolver.Resolve] returns a [Found] for each requirement. [Agent] returns a copy of the
// agent with the servers and their known tools: from the lock, from an earlier start on
// this machine, or from the catalogue. A requirement that cannot be met is not an error:
// its [Found] has the problem, and its tools refuse calls.
package registry
