-- The session tokens of users that have not expired. `id` is the token's jti.
CREATE TABLE user_sessions (
    id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    address TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX user_sessions_by_user ON user_sessions (user_id, id);
CREATE INDEX user_sessions_by_expiry ON user_sessions (expires_at);

-- Tokens that were issued until this time are invalid, except those in user_sessions.
ALTER TABLE users ADD COLUMN tokens_ended_at BIGINT;

-- The networks from which users signed in, each with the last time.
CREATE TABLE sign_in_addresses (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    address TEXT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, address)
);
CREATE INDEX sign_in_addresses_by_time ON sign_in_addresses (last_at);

-- One-time tokens that replace a password. Only the hash is stored.
CREATE TABLE password_resets (
    user_id TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    token_hash TEXT NOT NULL UNIQUE,
    expires_at BIGINT NOT NULL
);
