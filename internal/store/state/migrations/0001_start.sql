-- WITHOUT ROWID is used only for tables with small rows. The table leaves does not
-- use it: with records of 420 bytes, an append wrote as many pages as with a separate
-- index, and with records of 900 bytes it wrote more.

-- One row for each log of the journal. A SQLite store has only log 0. With PostgreSQL,
-- each owner leases a log, and the log of a dead owner is leased to another owner.
CREATE TABLE logs (
	log   BIGINT PRIMARY KEY,
	owner TEXT,
	born  BIGINT
) /*sqlite WITHOUT ROWID */;

INSERT INTO logs (log) VALUES (0);

-- The records of the journal. place is (log << 40) + seq, record contains the bytes of
-- the record, and hash is their hash. In SQLite, place is the rowid, so the table needs
-- no separate index, and an append writes one page.
CREATE TABLE leaves (
	place  BIGINT /*sqlite! INTEGER */ PRIMARY KEY,
	hash   BYTEA NOT NULL,
	record BYTEA
);

-- The size of each log and the right edge of its Merkle tree.
CREATE TABLE heads (
	log  BIGINT PRIMARY KEY,
	size BIGINT NOT NULL,
	edge BYTEA  NOT NULL
) /*sqlite WITHOUT ROWID */;

CREATE TABLE tiles (
	log    BIGINT NOT NULL,
	level  BIGINT NOT NULL,
	n      BIGINT NOT NULL,
	hashes BYTEA  NOT NULL,
	PRIMARY KEY (log, level, n)
);

CREATE TABLE checkpoints (
	log  BIGINT NOT NULL,
	size BIGINT NOT NULL,
	note BYTEA  NOT NULL,
	made BIGINT NOT NULL,
	PRIMARY KEY (log, size)
);

-- The calls with side effects that are in progress or have an unknown outcome. A row is
-- deleted when the outcome is recorded. mac proves who wrote the row. The column settled is always NULL.
CREATE TABLE calls (
	id        TEXT PRIMARY KEY,
	agent     TEXT,
	digest    TEXT,
	tool      TEXT,
	principal TEXT,
	state     TEXT,
	owner     TEXT,
	idem      TEXT,
	mac       BYTEA,
	sealed    BYTEA,
	record    BYTEA,
	started   BIGINT,
	settled   BIGINT
);

-- Recovery searches for calls by their state and owner.
CREATE INDEX calls_open ON calls (state, owner) WHERE settled IS NULL;

-- The result of the call with each idempotency key.
CREATE TABLE answers (
	agent     TEXT NOT NULL,
	principal TEXT NOT NULL,
	idem      TEXT NOT NULL,
	call      TEXT,
	mac       BYTEA NOT NULL,
	sealed    BYTEA,
	done      BIGINT,
	PRIMARY KEY (agent, principal, idem)
);

CREATE TABLE api_keys (
	id        TEXT PRIMARY KEY,
	name      TEXT,
	hash      BYTEA NOT NULL,
	principal TEXT,
	agents    TEXT,
	admin     BIGINT,
	made      BIGINT,
	expires   BIGINT,
	revoked   BIGINT
) /*sqlite WITHOUT ROWID */;

-- The lock files that each agent was started with. With them, ambit notices if a lock
-- file is missing or was replaced with an older one.
CREATE TABLE locks_seen (
	agent  TEXT   NOT NULL,
	digest TEXT   NOT NULL,
	seen   BIGINT NOT NULL,
	PRIMARY KEY (agent, digest)
);
