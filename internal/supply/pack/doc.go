// Package pack makes sure that what was hashed is what runs: it is the package
// store and the lock file.
//
// # From a command to a package
//
// A manifest says how a tool server is started. [Identify] reads such a command
// and says what it names: a package of npm (npx and its relatives) or of the
// Python index (uvx and its relatives), a local file, a program, or a remote
// server that nobody here can hash. A command that would run more than one such
// thing, or something nobody can name in advance, is [Unpinnable]: a pin that
// covers only half of what runs is worse than none, because it looks like one.
//
// # The store
//
// [Store.Fetch] downloads the published archive with the ecosystem's own client
// (npm, pip), hashes it, installs it with all its dependencies and without
// running a line of it, hashes the result file by file, makes it read-only and
// moves it into the store in one step. A crash leaves a folder that nothing
// looks into; two fetches of the same package end in one.
//
// The clients read what strangers wrote. They get an environment without secrets,
// npm no git, and pip no program at all to start: a dependency that is a repository
// or has to be built is refused, since both would run its code.
//
// A package in the store is one folder:
//
//	<os>-<arch>/<archive sha256>-<start of tree sha256>/
//	    package             the archive as published; its sha256 is package_digest
//	    dependencies.json   every dependency, with version and hash
//	    listing             one line for each file of the tree, under a header
//	    tree/               what runs
//
// A bundle ([Store.FetchBundle]) is an archive that brings its dependencies along. It
// is known by its hash before it is downloaded, and not looked into until it has
// that. What runs is the entry point that its manifest names, in its tree.
//
// The archive's hash alone does not fix what runs: dependencies are ranges. The
// tree digest does. It is the sha256 of the listing, and the listing's header
// holds the hashes of archive and dependencies, so that one digest covers
// everything. A lock file holds it, out of reach of whoever can write the
// store.
//
// [Store.Open] hashes everything again, every time, on all cores. There is no
// cache of file times: whoever can change a file can change its times. What
// differs is refused as [Tampered], and the first file that differs is named.
// The command that [Package.Argv] gives runs the program in the tree directly:
// no npx, no uvx, no network. Python packages run isolated from everything that
// is installed on the machine. Node.js has no such switch: a module that a
// package lacks is also looked for in node_modules of the folders above the
// store; [Package.Strays] names those that exist.
//
// The runtime itself (node, python3) is the machine's and is not pinned. For a
// local file the digest is that of the file alone, not of what it imports.
//
// # The lock file
//
// ambit.lock lies beside the manifests of a folder and holds, for each agent and
// server, the package, its tree on each platform, and every tool's whole
// definition with its hash. It is written deterministically, one fact a line,
// so that a diff of it can be reviewed; reading it is strict, and every hash in
// it that can be checked is checked. Dependency lists are shared: they stand
// once, under their own hash. They are what lets another machine install the
// very same tree.
//
// Errors are [*Error], each with a [Code] from a closed list and a hint.
package pack
