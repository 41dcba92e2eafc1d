-- How far each daybook was posted, in bytes.
CREATE TABLE daybooks (
	name   TEXT PRIMARY KEY,
	posted BIGINT NOT NULL
) /*sqlite WITHOUT ROWID */;
