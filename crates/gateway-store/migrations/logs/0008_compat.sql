-- The dialect of a request below /compat.
ALTER TABLE log_rows ADD COLUMN compat TEXT;
