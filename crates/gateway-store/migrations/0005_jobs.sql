-- Work that is done in the background. A job that somebody holds is due again when their lease ends.

CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    -- At most one job of a name and key waits or runs.
    only_one TEXT,
    payload TEXT NOT NULL,
    -- How often it was begun without coming to its end.
    attempts BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    -- Who holds the lease; null while it waits.
    holder TEXT,
    last_error TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (name, only_one)
);
CREATE INDEX jobs_by_time ON jobs (name, due_at);
CREATE INDEX jobs_held ON jobs (org_id, name) WHERE holder IS NOT NULL;
