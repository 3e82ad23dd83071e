-- Prompts and their versions. A version is never changed once it is there.

-- version is the latest one.
CREATE TABLE prompts (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    namespace TEXT NOT NULL,
    slug TEXT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, namespace, slug)
);
CREATE INDEX prompts_by_org ON prompts (org_id, id);
CREATE INDEX prompts_by_namespace ON prompts (org_id, namespace, id);

CREATE TABLE prompt_versions (
    prompt_id TEXT NOT NULL REFERENCES prompts (id) ON DELETE CASCADE,
    version BIGINT NOT NULL,
    content TEXT NOT NULL,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (prompt_id, version)
);
