-- Who holds which capability. The signature is over all the other columns.
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

-- What programs answered, for themselves to read later. The answer lies sealed,
-- bound to its agent.
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
