-- How long a request waited for its limits, and what it took of them: JSON, null where none applied.
ALTER TABLE log_rows ADD COLUMN queued_ms BIGINT;
ALTER TABLE log_rows ADD COLUMN limits TEXT;
