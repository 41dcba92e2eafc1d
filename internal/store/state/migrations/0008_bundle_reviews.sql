-- The reviews of code bundles by people. The latest review of a digest is the valid one.
CREATE TABLE bundle_reviews (
	digest    TEXT   NOT NULL,
	at        BIGINT NOT NULL,
	name      TEXT   NOT NULL,
	principal TEXT   NOT NULL,
	verdict   TEXT   NOT NULL,
	note      TEXT   NOT NULL,
	PRIMARY KEY (digest, at)
) /*sqlite WITHOUT ROWID */;
