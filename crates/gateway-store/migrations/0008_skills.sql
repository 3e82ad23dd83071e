-- Skills, their versions and what judges said of them; an organization's rubric; verdicts on log rows.

CREATE TABLE skills (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    -- The current version's, for lists and for being unique; the text is in skill_versions.
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    -- The version on the shelf; null while the skill is private.
    published_version BIGINT,
    published_at BIGINT,
    -- The shelf entry that it was adopted from, which may be gone by now.
    source_skill_id TEXT,
    source_version BIGINT,
    adoptions BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX skills_by_org ON skills (org_id, id);
CREATE INDEX skills_on_the_shelf ON skills (published_at) WHERE published_version IS NOT NULL;

-- Never changed once written, but for judged.
CREATE TABLE skill_versions (
    skill_id TEXT NOT NULL REFERENCES skills (id) ON DELETE CASCADE,
    version BIGINT NOT NULL,
    name TEXT NOT NULL,
    headline TEXT NOT NULL,
    description TEXT NOT NULL,
    body TEXT NOT NULL,
    raw_source TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    -- Did our own judge have its say?
    judged BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (skill_id, version)
);
CREATE INDEX skill_versions_to_judge ON skill_versions (created_at) WHERE judged = 0;

-- For finding what is alike on the shelf. embedder says which model made the vector.
CREATE TABLE skill_vectors (
    skill_id TEXT NOT NULL REFERENCES skills (id) ON DELETE CASCADE,
    version BIGINT NOT NULL,
    embedder TEXT NOT NULL,
-- only sqlite
    vector BLOB NOT NULL,
-- end
-- only postgres
    vector BYTEA NOT NULL,
-- end
    PRIMARY KEY (skill_id, version, embedder)
);

CREATE TABLE evaluations (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    skill_id TEXT NOT NULL REFERENCES skills (id) ON DELETE CASCADE,
    skill_version BIGINT NOT NULL,
    content_hash TEXT NOT NULL,
    rubric_config_id TEXT,
    axes TEXT NOT NULL,
    overall_score DOUBLE PRECISION NOT NULL,
    passed BIGINT NOT NULL,
    judge_provider TEXT NOT NULL,
    judge_model TEXT NOT NULL,
    latency_ms BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    source TEXT NOT NULL,
    external_ref TEXT NOT NULL,
    -- What brought it about; the same thing counts once, however often it is done.
    dispatch TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (skill_id, skill_version, dispatch)
);
CREATE INDEX evaluations_by_skill ON evaluations (skill_id, id);

CREATE TABLE rubrics (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL UNIQUE REFERENCES orgs (id) ON DELETE CASCADE,
    judge_provider TEXT NOT NULL,
    judge_model TEXT NOT NULL,
    embed_provider TEXT NOT NULL,
    embed_model TEXT NOT NULL,
    embed_dims BIGINT NOT NULL,
    weights TEXT NOT NULL,
    pass_threshold DOUBLE PRECISION NOT NULL,
    allowed_verdict_sources TEXT NOT NULL,
    -- Goes up with each change, so that a judge knows whether it judged by the rubric in force.
    revision BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- The row lies in the log; its id is its place in time, by which old verdicts are removed with it.
CREATE TABLE log_verdicts (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    log_id BIGINT NOT NULL,
    source TEXT NOT NULL,
    score DOUBLE PRECISION NOT NULL,
    passed BIGINT NOT NULL,
    details TEXT NOT NULL,
    external_ref TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX log_verdicts_by_row ON log_verdicts (org_id, log_id, id);
