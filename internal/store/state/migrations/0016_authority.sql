-- The register of authority: one row for each row of another table that gives somebody
-- authority, such as an API key or an approval. sum is a hash of that row. until is when the
-- entry is no longer needed, or 0.
CREATE TABLE authority (
	kind  TEXT   NOT NULL,
	id    TEXT   NOT NULL,
	sum   BYTEA  NOT NULL,
	until BIGINT NOT NULL,
	PRIMARY KEY (kind, id)
) /*sqlite WITHOUT ROWID */;

-- The head of the register, which has one row. name is a random name of the register,
-- version is a number that grows with every change, and mac is a keyed hash of the name, the
-- version and all rows of the table authority.
CREATE TABLE authority_head (
	one     BIGINT PRIMARY KEY,
	name    TEXT   NOT NULL,
	version BIGINT NOT NULL,
	mac     BYTEA  NOT NULL
);
