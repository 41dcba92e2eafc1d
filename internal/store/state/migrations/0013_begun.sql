-- The key of the journal that this store was begun with, in one row. Only its root,
-- and those that the journal was handed over to, belong here.
CREATE TABLE begun (
	one BIGINT PRIMARY KEY,
	key TEXT   NOT NULL
);
