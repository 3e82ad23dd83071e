-- Budgets of end users. They have a table of their own, which versions without them do not read. `user_name` is '*' for a
-- budget that holds for each user without one of its own. Limits are stored as in budgets.
CREATE TABLE user_budgets (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    user_name TEXT NOT NULL,
    period TEXT NOT NULL,
    soft_limit BIGINT,
    hard_limit BIGINT,
    soft_limit_coarse BIGINT,
    hard_limit_coarse BIGINT,
    unpriced TEXT NOT NULL,
    unpriced_flat BIGINT,
    opening_nanos BIGINT,
    created_at BIGINT NOT NULL
);
CREATE INDEX user_budgets_by_org ON user_budgets (org_id, id);

-- Which limits which users have reached in which period.
CREATE TABLE user_budget_notices (
    budget_id TEXT NOT NULL REFERENCES user_budgets (id) ON DELETE CASCADE,
    period TEXT NOT NULL,
    starts_at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    user_name TEXT NOT NULL,
    PRIMARY KEY (budget_id, period, starts_at, kind, user_name)
);

-- only postgres
-- How much of a user's budget each node may have outstanding.
CREATE TABLE user_budget_leases (
    budget_id TEXT NOT NULL REFERENCES user_budgets (id) ON DELETE CASCADE,
    user_name TEXT NOT NULL,
    starts_at BIGINT NOT NULL,
    node TEXT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (budget_id, user_name, starts_at, node)
);
-- end
