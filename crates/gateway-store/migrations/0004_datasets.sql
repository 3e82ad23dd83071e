-- Datasets, their frozen versions and their cases.

-- current_version is the latest frozen one, 0 before the first; case_count is the working copy's.
CREATE TABLE datasets (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    current_version BIGINT NOT NULL,
    case_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX datasets_by_org ON datasets (org_id, id);

CREATE TABLE dataset_versions (
    dataset_id TEXT NOT NULL REFERENCES datasets (id) ON DELETE CASCADE,
    version BIGINT NOT NULL,
    case_count BIGINT NOT NULL,
    note TEXT,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, version)
);

-- A line is one state of a case. It belongs to the versions from from_version up to, but not including, until_version;
-- without an end it is in the working copy. Freezing a version therefore copies nothing.
CREATE TABLE dataset_cases (
    dataset_id TEXT NOT NULL REFERENCES datasets (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    from_version BIGINT NOT NULL,
    until_version BIGINT,
    input TEXT NOT NULL,
    expected TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (dataset_id, id, from_version)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
