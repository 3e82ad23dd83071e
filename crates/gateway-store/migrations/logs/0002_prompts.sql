-- Which prompt was put into a request, as namespace/slug, and in which version. Usage is told apart by the prompt.
ALTER TABLE log_rows ADD COLUMN prompt TEXT;
ALTER TABLE log_rows ADD COLUMN prompt_version BIGINT;
ALTER TABLE usage_dims ADD COLUMN prompt TEXT;
