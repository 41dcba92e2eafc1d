-- The id of the call for which the approval was first requested.
ALTER TABLE approvals ADD COLUMN call TEXT;
