-- The call for which a question was asked first.
ALTER TABLE approvals ADD COLUMN call TEXT;
