-- The marks that the gateway added to a prompt for the provider's cache, and what that cache saved: whole 1e-12 USD,
-- negative where more was written than read.
ALTER TABLE log_rows ADD COLUMN cache_marks BIGINT;
ALTER TABLE log_rows ADD COLUMN cache_saved BIGINT;
