// Package journal is the tamper-evident log of every decision and outcome.
//
// A record is identified by (log, seq). Its leaf is the RFC 6962 hash of the exact JSON
// bytes in the store. These bytes begin with log and seq, so a record cannot be moved.
// [Journal.Append] runs in the transaction that settles a call. It writes one row for the
// leaf and one for the head. The head's edge contains the hashes of the complete subtrees,
// which is all that the next append needs. A process remembers the edge that it wrote and
// updates the head only if the edge is unchanged; if another process has appended, it
// reads the head again. Every 256 leaves, their hashes are also stored as a tile, and the
// tile's root becomes a hash of the tile above. A proof reads a few tiles and never the
// whole log.
//
// # Write-ahead log
//
// A commit costs more than the rest of a read-only call. [Journal.Note] stores a record
// that belongs to no other change. In a long-running process with SQLite, the record goes
// to the write-ahead log of the process (package wal), where it is durable at once. About a
// tenth of a second later it is posted to the journal, many records in one transaction.
// Every reader of the journal first posts all write-ahead logs of the store, also those of
// dead processes. Until it is posted, an entry is as unprotected as a record before its
// checkpoint. A file is written for an hour at most and removed after it was posted. In an
// existing home these files and their table are named daybooks.
//
// # Logs
//
// A SQLite store has only log 0. All processes of the machine append to it, one after the
// other, under the store's lock. On PostgreSQL each opening of the store leases its own
// log, so that writers do not wait for each other; only time orders records of different
// logs. Log 0 is then the roster: the first append to a log also writes a log_born record
// to log 0, and each of its checkpoints writes a log_checkpoint record, in the same
// transaction. Verify requires every log of the roster, with the recorded size and root,
// and rejects any other log. So a whole log cannot disappear unnoticed, and a checkpoint
// of log 0 covers all logs. Writers conflict in log 0 only at births and checkpoints, and
// the store runs conflicting transactions again.
//
// # Checkpoints
//
// A checkpoint is a signed note (c2sp.org/tlog-checkpoint) of a log's size and root.
// Append makes one inside its transaction for the first record of a process, then if the
// process has made none for a minute, and at every multiple of 4096 records. Close makes
// one for the remaining records. A checkpoint replaces an earlier one of the same minute,
// except at those multiples, which Verify requires.
//
// # Index
//
// The index answers queries such as "who used this tool a year ago". A block is the records
// of one tile. The append that completes a block also writes which values it contains: one
// row of the table journal_values for each tool, agent, caller, code and decision, and one
// row of journal_calls for all call ids, four bytes each. A filter finds the last block
// that contains all of its values and reads that block.
//
// Call ids are random, so a row for each id would be an insert at a random position for
// each record. A search for a call id (journal show --call) therefore scans the
// journal_calls rows of all blocks, from the newest: its time grows linearly with the
// journal, at about four bytes a record.
//
// The table journal_indexed names the run of indexed blocks of a log. If an older ambit
// appended to the log, a filter extends the run backwards as far as it has to search, 16
// blocks in a transaction; opening a store indexes nothing. Blocks outside the run are
// read. The index is not trusted: a missing entry could hide a record from a filter, so
// Verify compares the index with the records. Erasing replaces the entries of a block.
//
// # Keys
//
// [Journal.HandOver] replaces the key: both keys sign the current content of every log, and
// log 0 records the signatures. A checkpoint by the older key is valid up to that size and
// not beyond, and a process that still has the older key can sign nothing. From a trusted
// key, verification follows hand-overs backwards and forwards, but never forwards from an
// earlier key: a thief of an old key cannot appoint another successor.
//
// # What it proves
//
// Verify finds a record that was changed, removed, moved or added behind a signed
// checkpoint, and names the first one. It cannot detect three things. Records since the
// last checkpoint are not signed yet. An attacker who can write to the store but does not
// have the key can cut the journal back to an earlier checkpoint and remove all later ones.
// An attacker who has both the store and the key can rewrite everything. The remedy for all
// three is a checkpoint stored elsewhere: it protects all records that it covers.
//
// Records may be erased, for example for retention. The content is removed and the hash
// stays, so the journal still verifies, and the report counts the record. On SQLite no file
// contains the content afterwards, except a write-ahead log of the last hour; on PostgreSQL
// it is gone when the server reuses the space, as with all deleted data. Log 0 records each
// erasure with a signature that is bound to its position: an attacker who can only write to
// the store can remove content, but cannot make the removal look like an erasure.
package journal
