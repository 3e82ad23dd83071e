-- What imports from other gateways need.

-- What stands in the place of /v1 in the paths of calls, for servers that are called without it.
ALTER TABLE provider_credentials ADD COLUMN path_prefix TEXT;

-- Keys that another gateway made, by their SHA-256. They authenticate only below /compat.
CREATE TABLE foreign_keys (
    hash TEXT PRIMARY KEY,
    key_id TEXT NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX foreign_keys_by_key ON foreign_keys (key_id);
