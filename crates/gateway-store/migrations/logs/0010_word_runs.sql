-- The search index: runs of rows with the keys of their words (`gateway_core::word_runs`), so that storing the words of a
-- row costs no more than storing the row. Rows of earlier versions stay in log_words until their retention ends.
CREATE TABLE log_word_runs (
-- only sqlite
    -- An id is never used again: a search that reads a run while it is merged must not read another one.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
-- end
-- only postgres
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
-- end
    level BIGINT NOT NULL,
    row_count BIGINT NOT NULL,
    -- Rows of the run that were deleted since.
    deleted BIGINT NOT NULL,
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
-- only sqlite
    ids BLOB NOT NULL
-- end
-- only postgres
    ids BYTEA NOT NULL
-- end
);
CREATE INDEX log_word_runs_by_level ON log_word_runs (level, last_id);
CREATE INDEX log_word_runs_by_last ON log_word_runs (last_id);

-- The id of a part is the id of its run and the number of the part in the lowest 8 bits.
CREATE TABLE log_word_parts (
-- only sqlite
    id INTEGER PRIMARY KEY,
    postings BLOB NOT NULL
-- end
-- only postgres
    id BIGINT PRIMARY KEY,
    postings BYTEA NOT NULL
-- end
);
