-- Files of skills beside SKILL.md, links from which agents install skills, and the git repositories behind them.

-- A JSON list of path, size, sha256 and executable; its length and the sum of the sizes.
ALTER TABLE skill_versions ADD COLUMN files TEXT NOT NULL DEFAULT '[]';
ALTER TABLE skill_versions ADD COLUMN files_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE skill_versions ADD COLUMN files_bytes BIGINT NOT NULL DEFAULT 0;
-- The kinds of safety findings with the rules that found them; null until somebody asked.
ALTER TABLE skill_versions ADD COLUMN scan TEXT;

-- The contents of all versions of a skill, each once.
CREATE TABLE skill_blobs (
    skill_id TEXT NOT NULL REFERENCES skills (id) ON DELETE CASCADE,
    sha256 TEXT NOT NULL,
    size BIGINT NOT NULL,
-- only sqlite
    bytes BLOB NOT NULL,
-- end
-- only postgres
    bytes BYTEA NOT NULL,
-- end
    PRIMARY KEY (skill_id, sha256)
);

ALTER TABLE rubrics ADD COLUMN allow_files TEXT NOT NULL DEFAULT '{}';

CREATE TABLE install_links (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    -- passed, shelf, or a JSON list of ids.
    skills TEXT NOT NULL,
    token_hash TEXT NOT NULL UNIQUE,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
CREATE INDEX install_links_by_org ON install_links (org_id, id);

-- Who fetched what, by client; the newest of each link. The link is empty for fetches with a key.
CREATE TABLE install_fetches (
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    link_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    client TEXT NOT NULL,
    fetches BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, link_id, kind, client)
);

-- What is installed from a selection of skills, and the repository of it. selection is passed, shelf or the id of the
-- link that names its skills.
CREATE TABLE install_trees (
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    selection TEXT NOT NULL,
    -- Identifies the versions that the tree was built from.
    fingerprint TEXT NOT NULL,
    listing TEXT NOT NULL,
    head TEXT NOT NULL,
    root TEXT NOT NULL,
    commits BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, selection)
);

-- Git objects: kind 1 is a commit, 2 a tree, 3 a file. data is compressed as packs have it.
CREATE TABLE install_objects (
    org_id TEXT NOT NULL,
    selection TEXT NOT NULL,
    oid TEXT NOT NULL,
    kind BIGINT NOT NULL,
    size BIGINT NOT NULL,
-- only sqlite
    data BLOB NOT NULL,
-- end
-- only postgres
    data BYTEA NOT NULL,
-- end
    PRIMARY KEY (org_id, selection, oid),
    FOREIGN KEY (org_id, selection) REFERENCES install_trees (org_id, selection) ON DELETE CASCADE
);
