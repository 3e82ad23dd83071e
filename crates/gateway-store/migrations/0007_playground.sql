-- What was tried in the playground, by user or key. Runs of one comparison share its id.

CREATE TABLE playground_runs (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    comparison_id TEXT,
    position BIGINT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    params TEXT NOT NULL,
    messages TEXT NOT NULL,
    -- The template that the messages were made from.
    template TEXT,
    output TEXT NOT NULL,
    finish_reason TEXT,
    usage TEXT NOT NULL,
    cost_usd DOUBLE PRECISION,
    latency_ms BIGINT NOT NULL,
    log_id BIGINT,
    -- Set where the model gave no answer.
    error TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX playground_runs_by_owner ON playground_runs (org_id, owner, id);
CREATE INDEX playground_runs_by_comparison ON playground_runs (comparison_id, position);
