// Package journal is the tamper-evident log of every decision and outcome.
//
// A record is (log, seq). Its leaf is the RFC 6962 hash of the exact JSON bytes
// that are kept, and those bytes begin with log and seq, so that a record tells
// where it belongs. [Journal.Append] runs in the transaction that settles a
// call: one row for the leaf and one for the head, whose edge holds the hashes
// of the complete subtrees, which is all that the next append needs. A process
// remembers the edge it wrote, and moves the head only if it is still that one;
// where another process has appended, it reads the head again. Every 256
// leaves their hashes also become a tile, and each tile's root a hash of the
// tile above it; a proof reads a few tiles and never the whole log.
//
// # Daybooks
//
// A commit costs more than the rest of a read. [Journal.Note] keeps a record
// that settles nothing else: in a process that lives on, and on SQLite, it goes
// to a daybook, which is durable at once, and from there to the log, many in
// one transaction, about a tenth of a second later. Whatever reads the journal
// has all daybooks of the store posted first, those of the dead too. Until then
// an entry is protected as a record is before its checkpoint: not at all. A daybook
// is written to for an hour at most, and removed when it was posted.
//
// # Logs
//
// A SQLite store has log 0, which all processes of the machine append to, one
// after the other, under the store's lock. On PostgreSQL each opening of the
// store leases a log of its own, so that writers do not wait for each other,
// and there is no order between logs but that of time. Log 0 is then the
// roster: a log's first append also writes a log_born record into log 0, and
// each of its checkpoints a log_checkpoint record, in the same transaction.
// Verify demands every log of the roster, as long and with the same root as the
// roster says, and takes no log that is not in it: a whole log cannot vanish,
// and a checkpoint of log 0 speaks for all of them. Writers meet in log 0 at
// births and checkpoints only, and the store runs those that meet again.
//
// # Checkpoints
//
// A checkpoint is a signed note (c2sp.org/tlog-checkpoint) of a log's size and
// root. Append makes one inside its own transaction when a process has made
// none for a minute, its first record included, and at every multiple of 4096
// records; Close makes one for what is left. One that follows another within
// the same minute replaces it, except at those multiples, which Verify demands.
//
// # Index
//
// Who used that tool, a year ago? Whoever completes a tile of 256 leaves, a block, also
// writes which values the block contains: one row of the table journal_values for each
// tool, agent, caller, code and decision, and one row of journal_calls for all ids of
// calls, four bytes each. A filter finds the last block that contains all of its values
// and reads that block. Ids of calls are random, so a row for each would be an insert at
// a random place for each record; a lookup reads the rows of all blocks instead, about
// four bytes a record.
//
// The table journal_indexed names the one run of blocks of a log that is indexed. Where
// an older ambit appended, a filter extends the run backwards as far as it has to look,
// 16 blocks in a transaction; opening a store indexes nothing. Blocks outside the run
// are read. The index is not trusted: a missing entry could hide a record from a filter,
// so Verify compares the index with the records. Erasing replaces the entries of a block.
//
// # Keys
//
// [Journal.HandOver] lets another key take over: both sign what every log holds
// at that time, and log 0 records it. A checkpoint by the older key counts up to
// there and no further, and a process that still has that key can sign nothing. From a
// key that somebody trusts, hand-overs are followed backwards and forwards, but never
// forwards from a key that came before it: whoever stole an old key cannot name
// another heir.
//
// # What it proves
//
// Verify finds a record that was changed, removed, moved or added behind a
// signed checkpoint, and names the first one. Three things it cannot know.
// Records since the last checkpoint are not yet signed. Someone who can write
// the store but does not have the key can cut the journal back to an earlier
// checkpoint, together with all later ones. And someone who has both the store
// and the key can rewrite everything. The remedy for all three is a checkpoint
// that is kept elsewhere: evidence binds up to the last of those.
//
// A record may be erased for good reason. Its bytes go, its hash stays, the
// journal still verifies, and the report counts it. On SQLite they are in no file then,
// but for a daybook of the last hour; on PostgreSQL when the server has used their
// room again, as with all that is deleted there. Log 0 tells of each erasure, and
// the key signs that at its place: whoever can only write the store can take content
// away, but not make it pass for an erasure.
package journal
