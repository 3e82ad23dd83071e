-- The method of an MCP request and the tool, prompt or resource that it names; null for all other rows.
ALTER TABLE log_rows ADD COLUMN operation TEXT;
ALTER TABLE log_rows ADD COLUMN tool TEXT;
