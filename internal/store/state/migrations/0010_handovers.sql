-- The handovers of the journal from an older key to a newer key. There is one row for each
-- log, with the size and root of the log at that time and the signatures of both keys. Log 0
-- contains a record of each handover.
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
