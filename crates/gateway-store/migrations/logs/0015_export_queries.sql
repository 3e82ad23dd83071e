-- The rows that an export sends, in the query language; empty for all. skipped counts those that did not match.
ALTER TABLE exports ADD COLUMN query TEXT NOT NULL DEFAULT '';
ALTER TABLE exports ADD COLUMN skipped BIGINT NOT NULL DEFAULT 0;
