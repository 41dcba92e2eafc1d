-- The capabilities that were granted to each subject. The signature covers all other
-- columns.
CREATE TABLE grants (
	subject    TEXT   NOT NULL,
	action     TEXT   NOT NULL,
	scope      TEXT   NOT NULL,
	granted_by TEXT   NOT NULL,
	granted    BIGINT NOT NULL,
	expires    BIGINT NOT NULL,
	revoked    BIGINT NOT NULL,
	signature  BYTEA  NOT NULL,
	PRIMARY KEY (subject, action, scope)
) /*sqlite WITHOUT ROWID */;

-- Earlier answers of programs, which a program can read later. sealed contains the answer,
-- encrypted for its agent.
CREATE TABLE memories (
	agent   TEXT   NOT NULL,
	id      TEXT   NOT NULL,
	kept    BIGINT NOT NULL,
	expires BIGINT NOT NULL,
	size    BIGINT NOT NULL,
	sealed  BYTEA  NOT NULL,
	PRIMARY KEY (agent, id)
);

CREATE INDEX memories_age ON memories (agent, kept);
