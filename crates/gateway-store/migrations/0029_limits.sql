-- Limits of requests, tokens and concurrent calls. definition is JSON (`gateway_core::limits`). Of team_id, app_id and
-- key_id at most the one of the scope is set. noticed_at is the start of the last window of which an event told.
CREATE TABLE limits (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    team_id TEXT REFERENCES teams (id) ON DELETE CASCADE,
    app_id TEXT REFERENCES apps (id) ON DELETE CASCADE,
    key_id TEXT REFERENCES api_keys (id) ON DELETE CASCADE,
    noticed_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX limits_by_org ON limits (org_id, id);

-- The keys that a key's limit applies to: the one that it was made for, and those that replaced it.
CREATE TABLE limit_keys (
    limit_id TEXT NOT NULL REFERENCES limits (id) ON DELETE CASCADE,
    key_id TEXT NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    PRIMARY KEY (limit_id, key_id)
);
CREATE INDEX limit_keys_by_key ON limit_keys (key_id);

-- Calls that a limit refused, or in dry run would have refused, by hour.
CREATE TABLE limit_refusals (
    limit_id TEXT NOT NULL REFERENCES limits (id) ON DELETE CASCADE,
    hour BIGINT NOT NULL,
    refused BIGINT NOT NULL,
    would_refuse BIGINT NOT NULL,
    PRIMARY KEY (limit_id, hour)
);
CREATE INDEX limit_refusals_by_hour ON limit_refusals (hour);

-- What calls of a key may use and ask for: a reserved share of limits, how long they wait for them, and how important
-- they are.
ALTER TABLE api_keys ADD COLUMN class TEXT;
ALTER TABLE api_keys ADD COLUMN wait_ms BIGINT;
ALTER TABLE api_keys ADD COLUMN max_priority BIGINT;

-- only postgres
-- What is left in the buckets of limits, from which nodes take slices. level is in units of 1 / window_ms, so that the
-- refill of a millisecond is a whole number. A crash of the server may empty it: then the buckets are full.
CREATE UNLOGGED TABLE limit_buckets (
    limit_id TEXT NOT NULL REFERENCES limits (id) ON DELETE CASCADE,
    bucket TEXT NOT NULL,
    unit TEXT NOT NULL,
    level BIGINT NOT NULL,
    capacity BIGINT NOT NULL,
    window_ms BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (limit_id, bucket, unit)
);
CREATE INDEX limit_buckets_at ON limit_buckets (at);

-- The permits for concurrent calls that a node holds, as long as it renews them.
CREATE UNLOGGED TABLE limit_permits (
    limit_id TEXT NOT NULL REFERENCES limits (id) ON DELETE CASCADE,
    bucket TEXT NOT NULL,
    node TEXT NOT NULL,
    held BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (limit_id, bucket, node)
);
CREATE INDEX limit_permits_by_node ON limit_permits (node);
-- end
