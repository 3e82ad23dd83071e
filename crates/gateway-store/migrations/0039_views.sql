-- Saved views. owner is the id of the user or key that made it. definition is JSON (`gateway_core::views`).
CREATE TABLE views (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    page TEXT NOT NULL,
    definition TEXT NOT NULL,
    shared BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, owner, name)
);
CREATE INDEX views_by_org ON views (org_id, id);
