-- The journal key that this store was created with. The table has one row. Only a home with
-- the root of this key, or of a key that the journal was handed over to, can open the store.
CREATE TABLE begun (
	one BIGINT PRIMARY KEY,
	key TEXT   NOT NULL
);
