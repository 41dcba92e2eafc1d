// Package pack guarantees that the code that runs is the code that was hashed. It
// contains the package store and the lock file.
//
// # From a command to a package
//
// A manifest contains the command that starts a tool server. [Identify] returns what
// the command names: a package of npm (npx and similar) or of the Python index (uvx
// and similar), a local file, a program, or a remote server, which cannot be hashed.
// A command that would run more than one of these, or code that cannot be known in
// advance, is [Unpinnable]: a pin that covers half of the code would look like a
// guarantee without being one.
//
// # The store
//
// [Store.Fetch] downloads the published archive with the ecosystem's own client (npm,
// pip) and hashes it. It installs the archive and all dependencies without running
// any of their code, hashes the result file by file, makes it read-only and moves it
// into the store in one step. A crash leaves a work folder that is ignored; two
// concurrent fetches of one package end with one copy.
//
// The clients read untrusted data. Their environment contains no secrets. npm gets no
// git, and pip can start no program at all. Dependencies in a repository and
// dependencies that must be built are refused, since both would run their code.
//
// A package in the store is one folder:
//
//	<os>-<arch>/<archive sha256>-<start of tree sha256>/
//	    package             the archive as published; its sha256 is package_digest
//	    dependencies.json   every dependency, with version and hash
//	    listing             a header, then one line for each file of the tree
//	    tree/               the code that runs
//
// A bundle ([Store.FetchBundle]) is an archive that contains its dependencies. Its
// hash is known before the download, and nothing in it is read before the hash
// matches. The entry point in its manifest is the only code that is started.
//
// The archive's hash does not determine the dependencies, which are ranges. The tree
// digest does. It is the sha256 of the listing, and the listing's header contains the
// hashes of archive and dependencies, so one digest covers everything. The lock file
// holds it, where a process that can write the store cannot change it.
//
// [Store.Open] hashes everything again, every time, on all cores. It does not trust
// file times, because a process that can change a file can change its times. Modified
// packages return [Tampered] with the first file that differs. [Package.Argv] runs
// the program in the tree directly, without npx, uvx or network. Python packages run
// isolated from everything installed on the machine. Node.js has no such option: it
// also looks for missing modules in the node_modules folders above the store;
// [Package.Strays] lists those that exist.
//
// The runtime itself (node, python3) belongs to the machine and is not pinned. The
// digest of a local file covers that file alone, not the files it imports.
//
// # The lock file
//
// ambit.lock is in the folder of the manifests. For each agent and server it holds
// the package, its tree on each platform, and every tool's whole definition with its
// hash. It is written deterministically, one fact per line, so that a diff can be
// reviewed. Reading it is strict and checks every hash that can be checked. Lists of
// dependencies are shared: each appears once, under its own hash. With such a list
// another machine installs the same tree.
//
// Errors are [*Error], each with a [Code] from a closed list and a hint.
package pack
