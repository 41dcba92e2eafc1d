-- For each principal, the time until which untrusted text that a process has read counts.
-- Other processes do not know this text, so they treat arguments without a known origin as
-- doubtful.
CREATE TABLE flow_reads (
	principal TEXT   NOT NULL,
	owner     TEXT   NOT NULL,
	until     BIGINT NOT NULL,
	PRIMARY KEY (principal, owner)
) /*sqlite WITHOUT ROWID */;

-- Where the doubtful arguments of a waiting call come from, encrypted; NULL if none is doubtful.
ALTER TABLE approvals ADD COLUMN origin BYTEA;
