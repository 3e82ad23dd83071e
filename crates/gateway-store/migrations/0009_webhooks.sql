-- Webhooks and what they are sent.

-- Secrets are sealed with the master key. The previous one signs too until its time is over.
CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    previous_secret TEXT,
    previous_until BIGINT,
    -- A JSON list; empty means all types.
    events TEXT NOT NULL,
    active BIGINT NOT NULL,
    -- Since when every attempt has failed; null when the last one did not.
    failing_since BIGINT,
    -- Why the gateway itself switched it off.
    deactivated_reason TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX webhooks_by_org ON webhooks (org_id, id);

-- One event on its way to one webhook. `payload` is sent as it stands at every attempt. `tries` counts the attempts of
-- the present round; a retry by hand begins a new one, and is `forced`: made though the webhook is not active.
-- A node that makes an attempt holds the row until `leased_until`; when it dies, another takes over.
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL,
    -- A JSON list, oldest first.
    attempts TEXT NOT NULL,
    tries BIGINT NOT NULL,
    forced BIGINT NOT NULL,
    next_attempt_at BIGINT,
    lease TEXT,
    leased_until BIGINT,
    created_at BIGINT NOT NULL
);
CREATE INDEX deliveries_by_webhook ON deliveries (webhook_id, id);
CREATE INDEX deliveries_by_org ON deliveries (org_id);
CREATE INDEX deliveries_by_time ON deliveries (created_at);
CREATE INDEX deliveries_due ON deliveries (webhook_id, next_attempt_at) WHERE status = 'pending';
CREATE INDEX deliveries_forced ON deliveries (webhook_id) WHERE forced = 1;

CREATE INDEX events_by_time ON events (created_at);
