-- WITHOUT ROWID is for small rows only: leaves with it, at 420 bytes a record,
-- took as many pages for an append as with an index beside the table, and more
-- at 900.

-- One row for each journal log. SQLite has one log, 0. On PostgreSQL an owner
-- leases one, and a log whose owner is dead is leased again.
CREATE TABLE logs (
	log   BIGINT PRIMARY KEY,
	owner TEXT,
	born  BIGINT
) /*sqlite WITHOUT ROWID */;

INSERT INTO logs (log) VALUES (0);

-- The journal: place is log << 40 + seq, hash is the leaf's hash, record what
-- was hashed. In SQLite place is the row's own key, without an index beside the
-- table: an append writes one page.
CREATE TABLE leaves (
	place  BIGINT /*sqlite! INTEGER */ PRIMARY KEY,
	hash   BYTEA NOT NULL,
	record BYTEA
);

-- The right edge of each log's Merkle tree.
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

-- Calls that have an effect, from the intent on. What is settled is deleted; mac and
-- settled are NULL in every row.
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

-- Recovery looks for the few calls that are not settled.
CREATE INDEX calls_open ON calls (state, owner) WHERE settled IS NULL;

-- What an idempotency key was answered with.
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

-- The locks that were seen of an agent, newest last, so that losing one, or going
-- back to an older one, is noticed.
CREATE TABLE locks_seen (
	agent  TEXT   NOT NULL,
	digest TEXT   NOT NULL,
	seen   BIGINT NOT NULL,
	PRIMARY KEY (agent, digest)
);
