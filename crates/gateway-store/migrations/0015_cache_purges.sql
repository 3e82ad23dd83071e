-- Purges of the response cache. An entry in Redis has the marks of the purges that affect it, and is valid only while
-- they are the current ones. A scope is all entries, a namespace or one entry.
CREATE TABLE cache_purges (
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    scope TEXT NOT NULL,
    mark TEXT NOT NULL,
    purged_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, scope)
);
CREATE INDEX cache_purges_purged_at ON cache_purges (purged_at);
