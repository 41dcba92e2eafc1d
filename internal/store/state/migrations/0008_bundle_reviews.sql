-- What people said about code bundles that they have read. The last word on a
-- digest counts.
CREATE TABLE bundle_reviews (
	digest    TEXT   NOT NULL,
	at        BIGINT NOT NULL,
	name      TEXT   NOT NULL,
	principal TEXT   NOT NULL,
	verdict   TEXT   NOT NULL,
	note      TEXT   NOT NULL,
	PRIMARY KEY (digest, at)
) /*sqlite WITHOUT ROWID */;
