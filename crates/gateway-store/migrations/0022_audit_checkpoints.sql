-- Signed statements about audit logs. A `checkpoint` says that an entry had this hash; an `anchor` is the last entry that
-- retention removed, from which the rest of the chain continues.
CREATE TABLE audit_checkpoints (
    org_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    seq BIGINT NOT NULL,
    hash TEXT NOT NULL,
    at BIGINT NOT NULL,
    signature TEXT NOT NULL,
    key_id TEXT NOT NULL,
    PRIMARY KEY (org_id, kind, seq)
);

-- Keys that sign checkpoints. `sealed` is the private key, encrypted with the master key.
CREATE TABLE audit_keys (
    id TEXT PRIMARY KEY,
    public_key TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
