-- Evals: definitions, runs with their items, and verdicts. Their ids are numbers that fit into 53 bits.

CREATE TABLE evals (
    id BIGINT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    evaluator TEXT NOT NULL,
    config TEXT NOT NULL,
    enabled BIGINT NOT NULL,
    -- The share of new log rows that is judged as they come.
    sample_rate DOUBLE PRECISION NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX evals_by_org ON evals (org_id, id);
CREATE INDEX evals_live ON evals (id) WHERE enabled = 1 AND sample_rate > 0;

CREATE TABLE eval_runs (
    id BIGINT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    eval_id BIGINT NOT NULL REFERENCES evals (id) ON DELETE CASCADE,
    -- The dataset may be gone while its runs are still there.
    dataset_id TEXT,
    dataset_version BIGINT,
    begun_by TEXT NOT NULL,
    status TEXT NOT NULL,
    total BIGINT NOT NULL,
    passed BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    error TEXT,
    -- The definition as it was when the run was made, and the model that is asked first.
    definition TEXT NOT NULL,
    target TEXT,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT
);
CREATE INDEX eval_runs_by_org ON eval_runs (org_id, id);
CREATE INDEX eval_runs_by_eval ON eval_runs (eval_id, id);
CREATE INDEX eval_runs_open ON eval_runs (org_id) WHERE finished_at IS NULL;

-- What a run judges: log rows, or cases as they were when the run was made.
CREATE TABLE eval_run_items (
    run_id BIGINT NOT NULL REFERENCES eval_runs (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    log_id BIGINT,
    case_id TEXT,
    input TEXT,
    expected TEXT,
    metadata TEXT,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    error TEXT,
    PRIMARY KEY (run_id, position)
);
CREATE INDEX eval_run_items_pending ON eval_run_items (run_id, attempts, position) WHERE state = 'pending';
CREATE INDEX eval_run_items_failed ON eval_run_items (run_id, position) WHERE state = 'error';

CREATE TABLE eval_results (
    id BIGINT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    eval_id BIGINT NOT NULL REFERENCES evals (id) ON DELETE CASCADE,
    -- Null for a row of live traffic.
    run_id BIGINT REFERENCES eval_runs (id) ON DELETE CASCADE,
    position BIGINT,
    log_id BIGINT,
    case_id TEXT,
    score DOUBLE PRECISION NOT NULL,
    passed BIGINT NOT NULL,
    details TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (run_id, position)
);
CREATE UNIQUE INDEX eval_results_live ON eval_results (eval_id, log_id) WHERE run_id IS NULL;
CREATE INDEX eval_results_by_eval ON eval_results (eval_id, id);
CREATE INDEX eval_results_by_run ON eval_results (run_id, id);
CREATE INDEX eval_results_by_verdict ON eval_results (org_id, passed);
