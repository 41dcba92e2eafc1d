-- For each file of a write-ahead log of the journal, how many bytes of it are posted. An
-- earlier word for these logs was daybooks.
CREATE TABLE daybooks (
	name   TEXT PRIMARY KEY,
	posted BIGINT NOT NULL
) /*sqlite WITHOUT ROWID */;
