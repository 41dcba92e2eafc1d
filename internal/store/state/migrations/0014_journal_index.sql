-- The index of the journal: which blocks of 256 records contain a value that filters
-- compare. sum is a hash of the value. Up to version 13, the table words had this purpose,
-- and it is no longer read.
CREATE TABLE journal_values (
	log   BIGINT NOT NULL,
	sum   BIGINT NOT NULL,
	block BIGINT NOT NULL,
	PRIMARY KEY (log, sum, block)
) /*sqlite WITHOUT ROWID */;

CREATE INDEX journal_values_block ON journal_values (log, block);

-- The hashes of the call ids in a block, four bytes for each record. If each call id had a
-- row in journal_values instead, every record would need an insert at a random position.
CREATE TABLE journal_calls (
	log   BIGINT NOT NULL,
	block BIGINT NOT NULL,
	calls BYTEA  NOT NULL,
	PRIMARY KEY (log, block)
);

-- The range of indexed blocks of each log: from first up to, but not including, next.
CREATE TABLE journal_indexed (
	log   BIGINT PRIMARY KEY,
	first BIGINT NOT NULL,
	next  BIGINT NOT NULL
);
