-- The rights that a person added for one tool server of one agent. agent is the name of the
-- agent, and id is the id in its manifest. code identifies the program of the server. The
-- signature covers all other columns.
CREATE TABLE allowances (
	agent      TEXT   NOT NULL,
	id         TEXT   NOT NULL,
	server     TEXT   NOT NULL,
	code       TEXT   NOT NULL,
	kind       TEXT   NOT NULL,
	what       TEXT   NOT NULL,
	private    BIGINT NOT NULL,
	allowed_by TEXT   NOT NULL,
	allowed    BIGINT NOT NULL,
	signature  BYTEA  NOT NULL,
	PRIMARY KEY (agent, id, server, code, kind, what, private)
) /*sqlite WITHOUT ROWID */;
