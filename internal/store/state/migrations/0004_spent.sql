-- The single-use ids that were used, and when each of them expires.
CREATE TABLE spent (
	id    TEXT PRIMARY KEY,
	until BIGINT NOT NULL
) /*sqlite WITHOUT ROWID */;
