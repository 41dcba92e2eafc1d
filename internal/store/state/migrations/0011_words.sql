-- What stands in runs of records of the journal, as sums of its words, so that a
-- question about a rare one need not read them all. A row of level 0 is about 256
-- records, one of each level above about 16 rows of the level below. They can be
-- made again from the records at any time, and are, where one is not there.
CREATE TABLE words (
	log   BIGINT NOT NULL,
	level BIGINT NOT NULL,
	n     BIGINT NOT NULL,
	sums  BYTEA  NOT NULL,
	PRIMARY KEY (log, level, n)
);
