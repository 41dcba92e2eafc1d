-- How many calls each principal has made since the current minute began and since the
-- current day began.
CREATE TABLE quotas (
	principal TEXT   NOT NULL,
	span      TEXT   NOT NULL,
	began     BIGINT NOT NULL,
	used      BIGINT NOT NULL,
	PRIMARY KEY (principal, span)
) /*sqlite WITHOUT ROWID */;
