-- Deleted organizations. Their rows that arrive later, for example from the spool of a node that was down, are dropped.
CREATE TABLE log_deleted_orgs (
    id TEXT PRIMARY KEY
);
