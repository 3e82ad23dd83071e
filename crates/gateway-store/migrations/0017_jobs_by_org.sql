-- Organizations take turns, and their waiting jobs are counted.
CREATE INDEX jobs_by_org ON jobs (name, org_id, due_at);
