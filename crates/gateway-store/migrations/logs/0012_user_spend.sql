-- What end users spent on a day, which their budgets are checked against. Usage by user may count users of a day
-- together and is deleted with the rows, so it is not exact. `id` is a digest of organization and user: no name is kept.
CREATE TABLE user_spend (
    id BIGINT NOT NULL,
    day BIGINT NOT NULL,
    org_id TEXT NOT NULL,
    cost BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    PRIMARY KEY (id, day)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
CREATE INDEX user_spend_by_org ON user_spend (org_id);
CREATE INDEX user_spend_by_day ON user_spend (day);
ALTER TABLE log_days ADD COLUMN spend_lines BIGINT NOT NULL DEFAULT 0;
