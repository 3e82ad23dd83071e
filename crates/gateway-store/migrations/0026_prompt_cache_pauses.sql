-- Prompt caching that lost money over a hundred calls of a key, so that the setting is paused for it. `key_id` is empty for
-- calls of members without a key, `model` for the setting of the organization. `saved` is negative: whole 1e-12 USD.
CREATE TABLE prompt_cache_pauses (
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    saved BIGINT NOT NULL,
    paused_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, key_id, model)
);
