// Package journal is the tamper-evident log of every decision and outcome.
//
// A journal has one or more logs. Each log is a Merkle tree (RFC 6962). A record is identified by its log and its
// sequence number (seq). The leaf of a record is the hash of the exact JSON bytes in the store. The bytes begin with
// log and seq, so a record cannot be moved.
//
// [Journal.Append] runs in the transaction that ends a call. It inserts a row for the leaf and updates the head of the
// log. The head contains the edge, which is the list of the hashes of the complete subtrees. An append needs no other
// part of the tree. A process remembers the edge after its own last append. It reads the head again only if another
// process has changed the stored edge.
//
// The hashes of 256 consecutive leaves are also stored together as a tile. The root of a tile is part of a tile of
// the next level. A proof reads a few tiles and never the whole log.
//
// # Write-ahead log
//
// A database commit takes longer than the rest of a read-only call. Many records do not accompany another change in
// the store. [Journal.Note] avoids a commit for each of these records. In a long-running process with SQLite, Note
// writes the record to the write-ahead log of the process (package wal). The record is then on disk. About a tenth of
// a second later, the process posts its records: one transaction copies all waiting records to the journal. Until a
// record is posted, it has no more protection than a record after the last checkpoint.
//
// A reader of the journal first posts the write-ahead logs of all processes, including processes that have exited. A
// process writes to one file for at most an hour. The file is removed after all its records are posted. The directory
// and the database table of the write-ahead logs are named daybooks, which is an earlier name for write-ahead logs.
//
// # Logs
//
// A SQLite store has only log 0. All processes of the machine append to log 0, one after the other, under the lock of
// the store. With PostgreSQL, each process leases its own log when it opens the store, so writers do not wait for
// each other. Records of different logs are ordered only by their times.
//
// With PostgreSQL, log 0 is the roster, which lists the other logs. The first append to a log also writes a log_born
// record to log 0. Each checkpoint of a log also writes a log_checkpoint record to log 0. The records are written in
// the same transaction. Verify checks that every log in the roster exists and has the recorded size and root. It
// rejects logs that are not in the roster. A whole log therefore cannot disappear unnoticed, and a checkpoint of log
// 0 covers all logs. Writers can conflict in log 0 only when a log begins or gets a checkpoint. The store then
// repeats one of the transactions.
//
// # Checkpoints
//
// A checkpoint is a signed note (c2sp.org/tlog-checkpoint) with the size and root of a log. Append makes a checkpoint
// with the first record of the process, and after a minute without a checkpoint. It also makes a checkpoint when the
// size of the log reaches a multiple of 4096. Close makes a checkpoint for the remaining records. A checkpoint
// replaces an earlier checkpoint of the same minute. Checkpoints at multiples of 4096 records are never replaced,
// because Verify requires them.
//
// # Index
//
// The index speeds up queries such as "who used this tool a year ago". A block consists of the 256 records of one
// tile. The append that completes a block also indexes the values in the block. The table journal_values gets one row
// for each tool, agent, caller, code and decision in the block. The table journal_calls gets one row with all call
// ids of the block, shortened to four bytes each. A filter finds the newest block that contains all its values and
// reads only that block.
//
// Call ids are random. A table with one row for each call id would make every insert go to a random position.
// Instead, a search for a call id (ambit journal show --call) scans the journal_calls rows, newest first. The search
// reads about four bytes for each record of the journal.
//
// The table journal_indexed contains the range of indexed blocks of each log. Blocks from an older version of ambit
// are not indexed. A filter that reaches such blocks indexes them, 16 blocks in one transaction. Opening a store
// indexes nothing. The index is not trusted, because a missing entry could hide a record from a filter. Verify
// therefore compares the index with the records. An erasure replaces the index entries of the erased blocks.
//
// # Keys
//
// [Journal.HandOver] replaces the signing key. The old key and the new key both sign the current size and root of
// every log. Log 0 records the signatures. From then on, checkpoints by the old key are valid only up to the signed
// size. A process that still has the old key can sign nothing. Verification starts at a trusted key and follows the
// handovers to newer and older keys. It accepts only one successor of each key, so a thief of an old key cannot
// appoint another successor.
//
// # What Verify proves
//
// Verify detects if a record under a signed checkpoint was changed, removed, moved or inserted. It reports the
// position of the first such record. Verify cannot detect three kinds of changes:
//
//   - changes to records after the last checkpoint, because they are not signed yet;
//   - the removal of all records and checkpoints after an earlier checkpoint, by an attacker who can
//     write to the store but does not have the key;
//   - any change by an attacker who can write to the store and has the key.
//
// To detect these changes too, keep a copy of a checkpoint in another place. The copy protects all records that the
// checkpoint covers.
//
// Records can be erased, for example when their retention time has passed. An erasure removes the content of a record
// and keeps its hash. The journal still verifies, and the report counts the erased records. With SQLite, no file
// contains the content after an erasure, except a write-ahead log of the last hour. With PostgreSQL, the content is
// gone when the server reuses the space. Log 0 records each erasure with a signature that is valid only at one
// position. An attacker who can only write to the store can remove content, but cannot make the removal look like an
// erasure.
package journal
