-- Verdicts on rows leave through the queue of the rows. `verdict` names one and `content` is what is told of it; the line
-- of a row itself has neither.
-- only sqlite
CREATE TABLE export_queue_wider (
    export_id TEXT NOT NULL REFERENCES exports (id) ON DELETE CASCADE,
    log_id BIGINT NOT NULL,
    verdict TEXT NOT NULL DEFAULT '',
    content TEXT,
    PRIMARY KEY (export_id, log_id, verdict)
) WITHOUT ROWID;
INSERT INTO export_queue_wider (export_id, log_id) SELECT export_id, log_id FROM export_queue;
DROP TABLE export_queue;
ALTER TABLE export_queue_wider RENAME TO export_queue;
-- end
-- only postgres
ALTER TABLE export_queue ADD COLUMN verdict TEXT NOT NULL DEFAULT '';
ALTER TABLE export_queue ADD COLUMN content TEXT;
ALTER TABLE export_queue DROP CONSTRAINT export_queue_pkey;
ALTER TABLE export_queue ADD PRIMARY KEY (export_id, log_id, verdict);
-- end

-- Spans that others sent in have sums of their own where budgets look, which do not count them; null for all else.
ALTER TABLE usage_dims ADD COLUMN source TEXT;
