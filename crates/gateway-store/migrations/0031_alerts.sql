-- Rules on log rows. definition is JSON (`gateway_core::alerts`). A node that checks an alert moves next_check_at on
-- first, so that no other node checks it too.
CREATE TABLE alerts (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    enabled BIGINT NOT NULL,
    firing BIGINT NOT NULL,
    -- Whether receivers were told that it fires, and not that it is resolved.
    notified BIGINT NOT NULL,
    -- When it began to fire, or ended.
    changed_at BIGINT,
    muted_until BIGINT,
    checked_at BIGINT,
    -- What the last check found; null without rows to measure, or if it failed.
    value DOUBLE PRECISION,
    -- Why the last check failed.
    error TEXT,
    next_check_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX alerts_by_org ON alerts (org_id, id);
CREATE INDEX alerts_due ON alerts (next_check_at) WHERE enabled = 1;

-- When alerts fired, were resolved or tested.
CREATE TABLE alert_history (
    id TEXT PRIMARY KEY,
    alert_id TEXT NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    value DOUBLE PRECISION,
    requests BIGINT NOT NULL,
    -- No event was sent, because the alert was muted.
    muted BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX alert_history_by_alert ON alert_history (alert_id, id);

-- How the body of a delivery is written: standard, or slack.
ALTER TABLE webhooks ADD COLUMN format TEXT NOT NULL DEFAULT 'standard';
