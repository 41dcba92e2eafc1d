-- How much of its limits each limited tool has used. A transaction that changes the usage
-- updates the row first, so that with PostgreSQL two such transactions wait for each other.
CREATE TABLE meters (
	agent TEXT NOT NULL,
	tool  TEXT NOT NULL,
	day   TEXT NOT NULL,
	spent TEXT NOT NULL,
	PRIMARY KEY (agent, tool)
) /*sqlite WITHOUT ROWID */;

-- The recent calls of tools with a rate limit.
CREATE TABLE ticks (
	agent TEXT   NOT NULL,
	tool  TEXT   NOT NULL,
	at    BIGINT NOT NULL,
	call  TEXT   NOT NULL,
	PRIMARY KEY (agent, tool, at, call)
) /*sqlite WITHOUT ROWID */;
