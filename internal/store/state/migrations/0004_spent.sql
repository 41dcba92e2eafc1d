-- What is good only once and was used, until it would have expired anyway.
CREATE TABLE spent (
	id    TEXT PRIMARY KEY,
	until BIGINT NOT NULL
) /*sqlite WITHOUT ROWID */;
