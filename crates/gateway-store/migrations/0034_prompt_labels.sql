-- Names that point to a version of a prompt, such as production. previous_version is where the label pointed before.
CREATE TABLE prompt_labels (
    prompt_id TEXT NOT NULL REFERENCES prompts (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    previous_version BIGINT,
    updated_by TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (prompt_id, name)
);

-- The prompt of a run's target, as namespace/slug, and its version: for the scores of a version.
ALTER TABLE eval_runs ADD COLUMN prompt TEXT;
ALTER TABLE eval_runs ADD COLUMN prompt_version BIGINT;
CREATE INDEX eval_runs_by_prompt ON eval_runs (org_id, prompt, prompt_version) WHERE prompt IS NOT NULL;
-- only sqlite
UPDATE eval_runs SET prompt = (target ->> '$.prompt.namespace') || '/' || (target ->> '$.prompt.slug'),
    prompt_version = CAST(target ->> '$.prompt.version' AS BIGINT)
WHERE target ->> '$.prompt.version' IS NOT NULL;
-- end
-- only postgres
UPDATE eval_runs SET prompt = (CAST(target AS JSON) #>> '{prompt,namespace}') || '/' || (CAST(target AS JSON) #>> '{prompt,slug}'),
    prompt_version = CAST(CAST(target AS JSON) #>> '{prompt,version}' AS BIGINT)
WHERE CAST(target AS JSON) #>> '{prompt,version}' IS NOT NULL;
-- end
