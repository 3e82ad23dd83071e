-- Log rows, their bodies and words, sessions, and the roll-ups that usage is read from.
-- A row's place in time is its id: milliseconds since 2024 in the upper bits. Money is whole 1e-12 USD.

-- only sqlite
CREATE TABLE log_rows (
    id INTEGER PRIMARY KEY,
-- end
-- only postgres
CREATE TABLE log_rows (
    id BIGINT NOT NULL,
-- end
    org_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    level TEXT NOT NULL,
    source TEXT NOT NULL,
    provider TEXT NOT NULL,
    shape TEXT,
    model TEXT,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    status BIGINT NOT NULL,
    error_code TEXT,
    stream BIGINT NOT NULL,
    latency_ms BIGINT NOT NULL,
    ttft_ms BIGINT,
    prompt_tokens BIGINT,
    completion_tokens BIGINT,
    cached_tokens BIGINT,
    cache_write_tokens BIGINT,
    reasoning_tokens BIGINT,
    audio_tokens BIGINT,
    usage_estimated BIGINT NOT NULL,
    cost BIGINT,
    unpriced BIGINT NOT NULL,
    cache TEXT,
    attempts TEXT NOT NULL,
    key_id TEXT,
    app_id TEXT,
    team_id TEXT,
    user_id TEXT,
    session_id TEXT NOT NULL,
    metadata TEXT NOT NULL,
    traceparent TEXT,
    request_stored TEXT NOT NULL,
    response_stored TEXT NOT NULL,
    response_is_stream BIGINT NOT NULL,
    preview TEXT
-- only sqlite
);
-- An index of SQLite ends in the row's id by itself.
CREATE INDEX log_rows_by_org ON log_rows (org_id);
CREATE INDEX log_rows_by_session ON log_rows (org_id, session_id);
CREATE INDEX log_rows_by_user ON log_rows (org_id, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX log_rows_in_trouble ON log_rows (org_id) WHERE level <> 'info' OR status >= 400;

CREATE TABLE log_bodies (
    id INTEGER PRIMARY KEY,
    request BLOB NOT NULL,
    response BLOB NOT NULL
);

-- Words come cut and folded already, so that both databases find the same. Only whether a word is there is kept.
CREATE VIRTUAL TABLE log_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii'
);
-- end
-- only postgres
) PARTITION BY RANGE (id);
ALTER TABLE log_rows ADD PRIMARY KEY (id);
CREATE INDEX log_rows_by_org ON log_rows (org_id, id);
CREATE INDEX log_rows_by_session ON log_rows (org_id, session_id, id);
CREATE INDEX log_rows_by_user ON log_rows (org_id, user_id, id) WHERE user_id IS NOT NULL;
CREATE INDEX log_rows_in_trouble ON log_rows (org_id, id) WHERE level <> 'info' OR status >= 400;

CREATE TABLE log_bodies (
    id BIGINT NOT NULL,
    request BYTEA NOT NULL,
    response BYTEA NOT NULL
) PARTITION BY RANGE (id);
ALTER TABLE log_bodies ADD PRIMARY KEY (id);

-- Words come cut and folded already, so that both databases find the same. Only whether a word is there is kept.
CREATE TABLE log_words (
    id BIGINT NOT NULL,
    words TSVECTOR NOT NULL
) PARTITION BY RANGE (id);
ALTER TABLE log_words ADD PRIMARY KEY (id);
CREATE INDEX log_words_index ON log_words USING gin (words);
-- end

-- Rows whose words are not in the index yet.
CREATE TABLE log_unindexed (
-- only sqlite
    id INTEGER PRIMARY KEY
-- end
-- only postgres
    id BIGINT PRIMARY KEY
-- end
);

-- first_id orders the list. `owner` tells whose automatic sessions follow each other: a digest of organization, key and
-- user; null for sessions that a caller named.
CREATE TABLE log_sessions (
    org_id TEXT NOT NULL,
    id TEXT NOT NULL,
    first_id BIGINT NOT NULL,
    owner BIGINT,
    user_id TEXT,
    started_at BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    priced BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    providers TEXT NOT NULL,
    models TEXT NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX log_sessions_by_first ON log_sessions (org_id, first_id);
CREATE INDEX log_sessions_by_user ON log_sessions (org_id, user_id, first_id) WHERE user_id IS NOT NULL;
CREATE INDEX log_sessions_by_owner ON log_sessions (owner, last_seen_at) WHERE owner IS NOT NULL;

-- What usage is counted by. A cube is a choice of columns that are told apart; the others are empty in it. The id is a
-- digest of the whole line, so that a writer knows it without asking.
CREATE TABLE usage_dims (
-- only sqlite
    id INTEGER PRIMARY KEY,
-- end
-- only postgres
    id BIGINT PRIMARY KEY,
-- end
    org_id TEXT NOT NULL,
    cube BIGINT NOT NULL,
    provider TEXT,
    model TEXT,
    key_id TEXT,
    app_id TEXT,
    team_id TEXT,
    user_id TEXT,
    status BIGINT
);
CREATE INDEX usage_dims_by_org ON usage_dims (org_id, cube);
CREATE INDEX usage_dims_by_user ON usage_dims (org_id, cube, user_id) WHERE user_id IS NOT NULL;

-- The sums of one stretch of time are one text, written and read by `Totals`: a question over a month reads tens of
-- thousands of them, and handing each number to SQL would take most of the time. Hours of users are many and kept only
-- as long as rows are.
CREATE TABLE usage_hours (
    dim_id BIGINT NOT NULL,
    at BIGINT NOT NULL,
    totals TEXT NOT NULL,
    PRIMARY KEY (dim_id, at)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
CREATE INDEX usage_hours_by_time ON usage_hours (at);
CREATE TABLE usage_user_hours (
    dim_id BIGINT NOT NULL,
    at BIGINT NOT NULL,
    totals TEXT NOT NULL,
    PRIMARY KEY (dim_id, at)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
CREATE INDEX usage_user_hours_by_time ON usage_user_hours (at);
CREATE TABLE usage_days (
    dim_id BIGINT NOT NULL,
    at BIGINT NOT NULL,
    totals TEXT NOT NULL,
    PRIMARY KEY (dim_id, at)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
