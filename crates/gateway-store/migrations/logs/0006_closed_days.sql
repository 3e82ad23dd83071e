-- The usage of closed days by provider, model and status: the sum of all days before `until`, so that metrics need not
-- read every day. Rows that arrive later for a closed day are added to both.
CREATE TABLE usage_closed (
-- only sqlite
    dim_id INTEGER PRIMARY KEY,
-- end
-- only postgres
    dim_id BIGINT PRIMARY KEY,
-- end
    until BIGINT NOT NULL,
    totals TEXT NOT NULL
);

-- The ids of the rows that the latest batches stored, in the order of their commits. The live tail reads the rows of
-- other nodes by it, because a row's id is its start and says nothing about when it was stored.
CREATE TABLE log_batches (
    seq BIGINT NOT NULL,
    org_id TEXT NOT NULL,
    ids TEXT NOT NULL,
    PRIMARY KEY (org_id, seq)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
CREATE INDEX log_batches_by_seq ON log_batches (seq);
CREATE TABLE log_batch_counter (
    seq BIGINT NOT NULL
);
INSERT INTO log_batch_counter (seq) VALUES (0);
