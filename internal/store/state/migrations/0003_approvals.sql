-- The requests for a person to approve a call. mac binds an approval to the tool, the
-- arguments, the manifest and the principal. sealed contains the arguments that the person
-- is shown, encrypted.
CREATE TABLE approvals (
	id        TEXT PRIMARY KEY,
	agent     TEXT   NOT NULL,
	digest    TEXT   NOT NULL,
	tool      TEXT   NOT NULL,
	principal TEXT   NOT NULL,
	mac       BYTEA  NOT NULL,
	sealed    BYTEA,
	state     TEXT   NOT NULL,
	asked     BIGINT NOT NULL,
	expires   BIGINT NOT NULL,
	decider   TEXT,
	decided   BIGINT,
	reason    TEXT
) /*sqlite WITHOUT ROWID */;

CREATE INDEX approvals_open ON approvals (mac) WHERE state IN ('pending', 'approved');
