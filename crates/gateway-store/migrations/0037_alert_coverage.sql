-- Set if a check had too many rows to read: only those since this time were measured.
ALTER TABLE alerts ADD COLUMN scanned_to BIGINT;
ALTER TABLE alert_history ADD COLUMN scanned_to BIGINT;
