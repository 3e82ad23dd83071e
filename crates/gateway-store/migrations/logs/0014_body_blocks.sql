-- Bodies in compressed blocks (`gateway_core::body_blocks`). Those of earlier versions stay in log_bodies until their
-- retention ends. The id of a block is that of its first row.
-- only sqlite
CREATE TABLE log_body_blocks (
    id INTEGER PRIMARY KEY,
    last_id BIGINT NOT NULL,
    bodies BLOB NOT NULL
);
-- end
-- only postgres
CREATE TABLE log_body_blocks (
    id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    bodies BYTEA NOT NULL
) PARTITION BY RANGE (id);
ALTER TABLE log_body_blocks ADD PRIMARY KEY (id);
-- They are compressed already.
ALTER TABLE log_body_blocks ALTER COLUMN bodies SET STORAGE EXTERNAL;
-- end

-- The block with the bodies of the row, and their bytes before compression.
ALTER TABLE log_rows ADD COLUMN body_block BIGINT;
ALTER TABLE log_rows ADD COLUMN body_bytes BIGINT;
