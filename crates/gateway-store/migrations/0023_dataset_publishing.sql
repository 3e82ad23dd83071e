-- The number of a large import that is being added to the working copy. Its cases, whose until_version is the negative
-- number, belong to the working copy already. They are changed a few at a time, so that no transaction touches them all.
ALTER TABLE datasets ADD COLUMN publishing BIGINT;
