-- What limited tools have used up. Whoever changes it touches its row first,
-- so that on PostgreSQL two takers wait for each other.
CREATE TABLE meters (
	agent TEXT NOT NULL,
	tool  TEXT NOT NULL,
	day   TEXT NOT NULL,
	spent TEXT NOT NULL,
	PRIMARY KEY (agent, tool)
) /*sqlite WITHOUT ROWID */;

-- The calls that count towards a rate.
CREATE TABLE ticks (
	agent TEXT   NOT NULL,
	tool  TEXT   NOT NULL,
	at    BIGINT NOT NULL,
	call  TEXT   NOT NULL,
	PRIMARY KEY (agent, tool, at, call)
) /*sqlite WITHOUT ROWID */;
