-- What several nodes on one database tell each other. SQLite has one process, which has nobody to tell.

-- only postgres
-- What a node has to forget. `made_by` is the transaction that wrote the row: ids are given out before they are
-- committed, so that only transactions tell what a reader may have missed.
CREATE TABLE changes (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    made_by BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    made_at BIGINT NOT NULL DEFAULT (EXTRACT(EPOCH FROM now()) * 1000),
    what TEXT NOT NULL
);
CREATE INDEX changes_made_by ON changes (made_by);

-- Who has which of the node numbers that log ids carry.
CREATE TABLE nodes (
    id BIGINT PRIMARY KEY,
    holder TEXT NOT NULL,
    kept_until BIGINT NOT NULL
);

-- Requests of a key or user in a minute, by node. A crash of the server may empty it: it says nothing of more than a minute.
CREATE UNLOGGED TABLE rate_counts (
    minute BIGINT NOT NULL,
    id TEXT NOT NULL,
    node TEXT NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (minute, id, node)
);

-- How much of a budget's money each node may have outstanding: held for calls under way, or spent and not in the log's
-- roll-ups yet. Counts only as long as the node holds its number.
CREATE TABLE budget_leases (
    budget_id TEXT NOT NULL REFERENCES budgets (id) ON DELETE CASCADE,
    starts_at BIGINT NOT NULL,
    node TEXT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (budget_id, starts_at, node)
);

-- What strangers tried, by address.
CREATE UNLOGGED TABLE attempt_counts (
    kind TEXT NOT NULL,
    address TEXT NOT NULL,
    began_at BIGINT NOT NULL,
    tried BIGINT NOT NULL,
    PRIMARY KEY (kind, address)
);
-- end
