-- The sign-ins of callers to remote tool servers, encrypted. The row with an empty principal contains the client that
-- ambit registered for all of them.
CREATE TABLE signins (
	agent     TEXT  NOT NULL,
	server    TEXT  NOT NULL,
	principal TEXT  NOT NULL,
	sealed    BYTEA NOT NULL,
	PRIMARY KEY (agent, server, principal)
) /*sqlite WITHOUT ROWID */;

-- Which process is changing a sign-in, and until when the others wait for it.
CREATE TABLE signin_claims (
	agent     TEXT   NOT NULL,
	server    TEXT   NOT NULL,
	principal TEXT   NOT NULL,
	claim     TEXT   NOT NULL,
	until     BIGINT NOT NULL,
	PRIMARY KEY (agent, server, principal)
) /*sqlite WITHOUT ROWID */;

-- The sign-ins for which a browser has not come back yet, encrypted. id is a hash of the state in the page's address.
CREATE TABLE signins_begun (
	id        TEXT   NOT NULL,
	principal TEXT   NOT NULL,
	until     BIGINT NOT NULL,
	sealed    BYTEA  NOT NULL,
	PRIMARY KEY (id)
) /*sqlite WITHOUT ROWID */;
