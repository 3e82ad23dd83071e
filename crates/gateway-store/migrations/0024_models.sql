-- Named models and their versions. A version is never changed once it is there.

-- version is the latest one.
CREATE TABLE models (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX models_by_org ON models (org_id, id);

-- definition is JSON.
CREATE TABLE model_versions (
    model_id TEXT NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    version BIGINT NOT NULL,
    definition TEXT NOT NULL,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (model_id, version)
);
