-- Replays: log rows whose requests are made again with another model, provider or prompt.

-- target and evals are JSON: what is changed, and the evals as they were when the replay was made. Costs are whole
-- 1e-12 USD.
CREATE TABLE replays (
    id BIGINT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT,
    status TEXT NOT NULL,
    target TEXT NOT NULL,
    evals TEXT NOT NULL,
    total BIGINT NOT NULL,
    done BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    -- What the calls cost so far.
    spent BIGINT NOT NULL,
    estimated BIGINT NOT NULL,
    -- Rows whose cost could not be estimated.
    unpriced BIGINT NOT NULL,
    max_cost BIGINT,
    error TEXT,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT
);
CREATE INDEX replays_by_org ON replays (org_id, id);
CREATE INDEX replays_open ON replays (org_id) WHERE finished_at IS NULL;

-- The rows of a replay. before is what the log row says; after is null until the request was made again.
CREATE TABLE replay_items (
    replay_id BIGINT NOT NULL REFERENCES replays (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    log_id BIGINT NOT NULL,
    -- The log row of the new call.
    replay_log_id BIGINT,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    error TEXT,
    before_provider TEXT NOT NULL,
    before_model TEXT,
    before_status BIGINT NOT NULL,
    before_cost BIGINT,
    before_latency_ms BIGINT NOT NULL,
    before_input_tokens BIGINT,
    before_output_tokens BIGINT,
    after_provider TEXT,
    after_model TEXT,
    after_status BIGINT,
    after_cost BIGINT,
    after_latency_ms BIGINT,
    after_input_tokens BIGINT,
    after_output_tokens BIGINT,
    PRIMARY KEY (replay_id, position)
);
CREATE INDEX replay_items_pending ON replay_items (replay_id, attempts, position) WHERE state = 'pending';

-- The scores of one eval on both answers. A side without a verdict is null, and error says why.
CREATE TABLE replay_scores (
    replay_id BIGINT NOT NULL REFERENCES replays (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    eval_id BIGINT NOT NULL,
    before_score DOUBLE PRECISION,
    before_passed BIGINT,
    after_score DOUBLE PRECISION,
    after_passed BIGINT,
    error TEXT,
    PRIMARY KEY (replay_id, position, eval_id)
);
