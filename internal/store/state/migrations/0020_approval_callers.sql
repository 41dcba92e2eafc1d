-- The number of calls that wait for the answer, and when the last of them stopped waiting.
ALTER TABLE approvals ADD COLUMN waiting BIGINT NOT NULL DEFAULT 1;
ALTER TABLE approvals ADD COLUMN left_at BIGINT;
-- 1 if a caller has been told of the denial.
ALTER TABLE approvals ADD COLUMN heard BIGINT;
