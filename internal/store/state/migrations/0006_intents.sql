-- What was asked of programs, one row for each intent, from the asking to the
-- answer. level is the priority it has in the queue: 1 high, 2 normal, 3 low.
-- owner is who has it, kind and job are its place in the shared queue. What was
-- asked and what was answered lie sealed.
CREATE TABLE intents (
	id         TEXT PRIMARY KEY,
	agent      TEXT   NOT NULL,
	digest     TEXT   NOT NULL,
	name       TEXT   NOT NULL,
	principal  TEXT   NOT NULL,
	parent     TEXT   NOT NULL,
	priority   TEXT   NOT NULL,
	level      BIGINT NOT NULL,
	over       BIGINT NOT NULL,
	repeatable BIGINT NOT NULL,
	sealed     BYTEA,
	state      TEXT   NOT NULL,
	owner      TEXT   NOT NULL,
	kind       TEXT   NOT NULL,
	job        BIGINT NOT NULL,
	attempts   BIGINT NOT NULL,
	cancel     BIGINT NOT NULL,
	asked      BIGINT NOT NULL,
	started    BIGINT NOT NULL,
	ended      BIGINT NOT NULL,
	answer     BYTEA
);

CREATE INDEX intents_open ON intents (state, owner) WHERE ended = 0;

CREATE INDEX intents_asked ON intents (asked);

-- What programs have used of their budgets, for as long as it counts.
CREATE TABLE credits (
	agent TEXT   NOT NULL,
	at    BIGINT NOT NULL,
	call  TEXT   NOT NULL,
	used  BIGINT NOT NULL,
	PRIMARY KEY (agent, at, call)
) /*sqlite WITHOUT ROWID */;

-- Which kinds of intents a worker takes from the shared queue.
CREATE TABLE workers (
	owner TEXT   NOT NULL,
	kind  TEXT   NOT NULL,
	since BIGINT NOT NULL,
	PRIMARY KEY (owner, kind)
) /*sqlite WITHOUT ROWID */;
