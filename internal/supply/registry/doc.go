// Package registry turns what an agent requires, a server id and a version
// constraint, into a server that can be started.
//
// # Where a server is looked up
//
// A server id is <host>/<rest>. In this order:
//
//   - ambit.lock beside the manifest: what was resolved once stays, for as long as
//     the constraint takes it, and needs nobody else.
//   - the catalogue ([catalog]), which is on this machine.
//   - the registry of that host, by the official MCP registry API (v0.1).
//
// A registry that the user has configured for a host is asked before the
// catalogue, which then only helps with what that registry does not know.
//
// Of a registry's versions those that are deleted, deprecated, or no semantic
// version are left out; of the others that the constraint takes, the newest is
// chosen, by comparing versions and not by what the registry calls its latest.
//
// # What a registry may decide
//
// A registry is somebody else. It may name a package of npm or the Python index at
// one exact version, a bundle (mcpb) with its sha256, or a public https address.
// Where it gives no hash of a package, what was fetched first is what is run
// later, also before anything is locked; and a package of an index that is not
// asked here needs one, since what has its name elsewhere may be something else.
// Container images are refused. It may not hand out this machine's secrets: the
// value of a variable that it marks as secret, or requires, comes from the user's
// own settings or the server does not start. Options for the runtime that starts a package are refused,
// since they could run something else, and so are values of variables by which the
// loader, an interpreter or a client of the network would ([pack.MachineVariable]).
// Answers are bounded, in bytes and in what is made of them, redirects are not followed, and only public addresses are dialled, but for a
// registry that the user has configured on this very machine, or as private. A
// bundle is seldom where it is published, so its redirects are followed, a few, and
// each is held to the same: a public address over https, or the registry's own.
//
// A lock may be anybody's too. A recipe in it counts as what was given for the id if
// the catalogue or the registry gives it, or has given it here before; any other gets
// no secret of this machine, none of the user's settings, and public addresses only.
// So does a package whose dependencies or install scripts are those of a lock that was
// not made here: they are code in the same process.
//
// Answers are kept for an hour. When a registry cannot be reached, older ones are
// used, for a month, and that is told.
//
// # What comes of it
//
// [Resolver.Resolve] returns a [Found] for each requirement, and [Agent] a copy of the
// agent with the servers and, as far as they are known, their tools: from the lock, from
// an earlier start on this machine, or from the catalogue. A requirement that nothing
// meets is no error. Its [Found] has the problem, and its tools refuse calls.
package registry
