-- Calls of tools that the model answered with, as a JSON list. Runs of earlier versions have none.
ALTER TABLE playground_runs ADD COLUMN tool_calls TEXT;
