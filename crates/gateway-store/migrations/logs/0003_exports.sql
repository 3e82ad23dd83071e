-- Exports live beside the log rows, so that what a destination is still owed is written in the transaction of the rows.

-- Headers and secret are sealed with the master key. `periods` is a JSON list of [from, until or null]: when the export
-- was enabled, as far as rows that are still on their way may need it. `lease` names the node that delivers.
CREATE TABLE exports (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    headers TEXT,
    secret TEXT,
    sources TEXT NOT NULL,
    enabled BIGINT NOT NULL,
    periods TEXT NOT NULL,
    -- Grows with every change, so that a delivery under way notices.
    revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_success_at BIGINT,
    last_error TEXT,
    delivered BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    dropped BIGINT NOT NULL,
    -- Failures in a row, and when to try again.
    tries BIGINT NOT NULL,
    retry_at BIGINT NOT NULL,
    -- How many rows go into the next batch: fewer after a destination found one too large.
    batch BIGINT NOT NULL,
    lease TEXT,
    leased_until BIGINT,
    UNIQUE (org_id, name)
);

-- Rows that a destination is owed. They are taken in order of id and removed one by one, so that it does not matter in
-- which order they came.
CREATE TABLE export_queue (
    export_id TEXT NOT NULL REFERENCES exports (id) ON DELETE CASCADE,
    log_id BIGINT NOT NULL,
    PRIMARY KEY (export_id, log_id)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
