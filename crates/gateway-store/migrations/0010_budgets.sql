-- Budgets. What was spent stands nowhere here: it is read from the days of the log's roll-ups, which count each row once.
-- Money is whole 1e-12 USD. Of team_id, app_id and key_id at most the one of the scope is set.
CREATE TABLE budgets (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    scope TEXT NOT NULL,
    team_id TEXT REFERENCES teams (id) ON DELETE CASCADE,
    app_id TEXT REFERENCES apps (id) ON DELETE CASCADE,
    key_id TEXT REFERENCES api_keys (id) ON DELETE CASCADE,
    period TEXT NOT NULL,
    soft_limit BIGINT,
    hard_limit BIGINT,
    created_at BIGINT NOT NULL
);
CREATE INDEX budgets_by_org ON budgets (org_id, id);

-- The keys whose spending a key's budget counts: the one that it was made for, and those that replaced it.
CREATE TABLE budget_keys (
    budget_id TEXT NOT NULL REFERENCES budgets (id) ON DELETE CASCADE,
    key_id TEXT NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    PRIMARY KEY (budget_id, key_id)
);
CREATE INDEX budget_keys_by_key ON budget_keys (key_id);

-- Which limits were reached in which period: a line is written once, with the event that tells of it.
CREATE TABLE budget_notices (
    budget_id TEXT NOT NULL REFERENCES budgets (id) ON DELETE CASCADE,
    period TEXT NOT NULL,
    starts_at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (budget_id, period, starts_at, kind)
);
