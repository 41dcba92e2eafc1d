-- The groups of the holder of an API key, as an encoded list. Empty means none.
ALTER TABLE api_keys ADD COLUMN member_of TEXT NOT NULL DEFAULT '';
