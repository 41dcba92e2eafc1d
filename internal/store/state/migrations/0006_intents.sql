-- The requests to programs, which are called intents, from the request to the answer.
-- level is the priority in the queue: 1 is high, 2 is normal, 3 is low. owner is the
-- process that handles the intent. kind and job identify the intent in the shared queue.
-- sealed contains the request and answer contains the answer, both encrypted.
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

-- How much of their budgets programs have used. Rows are deleted when they are too old to
-- count.
CREATE TABLE credits (
	agent TEXT   NOT NULL,
	at    BIGINT NOT NULL,
	call  TEXT   NOT NULL,
	used  BIGINT NOT NULL,
	PRIMARY KEY (agent, at, call)
) /*sqlite WITHOUT ROWID */;

-- The kinds of intents that each worker takes from the shared queue.
CREATE TABLE workers (
	owner TEXT   NOT NULL,
	kind  TEXT   NOT NULL,
	since BIGINT NOT NULL,
	PRIMARY KEY (owner, kind)
) /*sqlite WITHOUT ROWID */;
