-- An earlier index of the journal, which is no longer used: hashes of the words that occur
-- in its records. A row of level 0 covers 256 records. A row of a higher level covers 16
-- rows of the level below it.
CREATE TABLE words (
	log   BIGINT NOT NULL,
	level BIGINT NOT NULL,
	n     BIGINT NOT NULL,
	sums  BYTEA  NOT NULL,
	PRIMARY KEY (log, level, n)
);
