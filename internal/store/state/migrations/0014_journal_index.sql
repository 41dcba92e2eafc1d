-- Which blocks of 256 records of the journal contain a value that filters compare. sum
-- is a hash of the value. Version 13 kept the table words instead, which is no longer
-- read.
CREATE TABLE journal_values (
	log   BIGINT NOT NULL,
	sum   BIGINT NOT NULL,
	block BIGINT NOT NULL,
	PRIMARY KEY (log, sum, block)
) /*sqlite WITHOUT ROWID */;

CREATE INDEX journal_values_block ON journal_values (log, block);

-- The hashed ids of the calls of a block, four bytes for each record. A row of
-- journal_values for each call would be an insert at a random place for each record.
CREATE TABLE journal_calls (
	log   BIGINT NOT NULL,
	block BIGINT NOT NULL,
	calls BYTEA  NOT NULL,
	PRIMARY KEY (log, block)
);

-- The blocks of a log that are indexed: from first up to, and without, next.
CREATE TABLE journal_indexed (
	log   BIGINT PRIMARY KEY,
	first BIGINT NOT NULL,
	next  BIGINT NOT NULL
);
