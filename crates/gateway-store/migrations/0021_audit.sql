-- The audit log: entries in a chain of hashes per organization (or `system`). `body` is the canonical JSON of an entry
-- without its hash. The other columns repeat parts of it for queries, and verification compares them.
CREATE TABLE audit_heads (
    org_id TEXT PRIMARY KEY,
    seq BIGINT NOT NULL,
    hash TEXT NOT NULL,
    at BIGINT NOT NULL
);

-- only sqlite
CREATE TABLE audit_entries (
    org_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    at BIGINT NOT NULL,
    actor_id TEXT,
    action TEXT NOT NULL,
    target_type TEXT NOT NULL,
    target_id TEXT,
    outcome TEXT NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (org_id, seq)
);
-- end
-- only postgres
-- Partitions by month are created in advance; the default one takes entries of a clock that is far off.
CREATE TABLE audit_entries (
    org_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    at BIGINT NOT NULL,
    actor_id TEXT,
    action TEXT NOT NULL,
    target_type TEXT NOT NULL,
    target_id TEXT,
    outcome TEXT NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (org_id, seq, at)
) PARTITION BY RANGE (at);
CREATE TABLE audit_entries_default PARTITION OF audit_entries DEFAULT;
-- end
CREATE INDEX audit_entries_by_id ON audit_entries (org_id, id);
CREATE INDEX audit_entries_by_target ON audit_entries (org_id, target_type, target_id, seq);
