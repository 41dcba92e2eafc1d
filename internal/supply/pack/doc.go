// Package pack implements the package store and the lock file, ambit.lock. It guarantees that ambit runs exactly the
// code that was hashed.
//
// # From a command to a package
//
// A manifest contains the command that starts a tool server. [Identify] determines which code the command runs: an
// npm package (npx and similar commands), a package from the Python package index (uvx and similar commands), a local
// file, or a program on PATH. A remote server cannot be hashed. A command is [Unpinnable] if it would run several
// packages, several files, or code that cannot be known in advance. A pin for only part of the code would be a false
// guarantee.
//
// # The store
//
// [Store.Fetch] downloads the published archive with the ecosystem's own client (npm or pip) and hashes the archive.
// Then it installs the archive and all dependencies without running any of their code. It hashes every installed file
// and makes the files read-only. One atomic rename moves the result into the store. A crash leaves a work folder
// behind, which later runs ignore. Two concurrent fetches of the same package produce one copy in the store.
//
// The clients read untrusted data, so their environment contains only the variables that they need. npm cannot run
// git. pip can start only the few programs that runPip allows. The store refuses dependencies from a git repository
// and dependencies that must be built. Installing such a dependency would run its code.
//
// A package in the store is one folder:
//
//	<os>-<arch>/<archive sha256>-<start of tree sha256>/
//	    package             the archive as published; its sha256 is package_digest
//	    dependencies.json   every dependency, with version and hash
//	    listing             a header, then one line for each file of the tree
//	    tree/               the code that runs
//
// A bundle ([MCPB]) is one archive that contains a server and its dependencies. The bundle's hash is known before the
// download. ambit checks the hash before it reads any file in the archive. ambit starts only the entry point that the
// bundle's manifest names.
//
// An archive lists its dependencies only as version ranges. The archive's hash therefore does not determine which
// dependencies are installed. The tree digest covers all installed files. It is the sha256 of the listing. The
// listing's header contains the hashes of the archive and of the dependencies. The tree digest is in the lock file,
// outside the store. A process that can write only to the store cannot change the tree digest.
//
// [Store.Open] hashes all files again every time, on all cores. It does not trust file times, because a process that
// can change a file can also change the file's times. If a package was modified, Store.Open returns a [Tampered]
// error with the first file that differs. [Package.Argv] returns a command that runs the program in the tree
// directly, without npx, uvx or the network. Python packages run isolated from all packages installed on the machine.
// Node.js cannot be isolated in this way, because it also searches node_modules folders above the store.
// [Package.Strays] lists the existing folders of this kind.
//
// The runtime itself (node, python3) belongs to the machine and is not pinned. The digest of a local file covers that
// file alone, not the files it imports. If the file is a script in a project, a folder with a package.json or
// pyproject.toml, then the lock file also contains the digest of the whole project.
//
// # The lock file
//
// The lock file is in the same folder as the manifests. For each agent and server, it contains the package and the
// package's tree on each platform. It also contains the whole definition of every tool, with the definition's hash.
// The lock file is deterministic and has one fact per line, so diffs are easy to review. ambit reads the lock file
// strictly and checks every hash that can be checked. Each list of dependencies appears once, under its hash.
// Packages refer to the list by this hash. Another machine uses the list to install the same tree.
//
// The functions return errors of type [*Error]. Each error has a hint and a [Code] from a fixed list.
package pack
