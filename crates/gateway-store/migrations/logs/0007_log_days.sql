-- What an organization stored on a day: rows and bytes of bodies, for its quotas, and lines of usage by user and by
-- everything else, of which there is a maximum.
CREATE TABLE log_days (
    org_id TEXT NOT NULL,
    day BIGINT NOT NULL,
    stored_rows BIGINT NOT NULL,
    body_bytes BIGINT NOT NULL,
    user_lines BIGINT NOT NULL,
    model_lines BIGINT NOT NULL,
    PRIMARY KEY (org_id, day)
-- only sqlite
) WITHOUT ROWID;
-- end
-- only postgres
);
-- end
CREATE INDEX log_days_by_day ON log_days (day);

-- Rows beyond a quota: they are in the roll-ups, and only their ids are stored, so that they are counted once.
CREATE TABLE log_counted (
-- only sqlite
    id INTEGER PRIMARY KEY
-- end
-- only postgres
    id BIGINT PRIMARY KEY
-- end
);
