-- How many calls a principal has made in the minute, and on the day, that began then.
CREATE TABLE quotas (
	principal TEXT   NOT NULL,
	span      TEXT   NOT NULL,
	began     BIGINT NOT NULL,
	used      BIGINT NOT NULL,
	PRIMARY KEY (principal, span)
) /*sqlite WITHOUT ROWID */;
