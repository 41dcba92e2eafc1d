-- From which key to which the journal was handed over, for each log with what it
-- held then. Both keys sign it; log 0 has a record of the same.
CREATE TABLE handovers (
	log    BIGINT NOT NULL,
	size   BIGINT NOT NULL,
	root   BYTEA  NOT NULL,
	older  TEXT   NOT NULL,
	newer  TEXT   NOT NULL,
	by_old BYTEA  NOT NULL,
	by_new BYTEA  NOT NULL,
	PRIMARY KEY (log, older)
);
