-- The deletion of an application looks for its keys, and what a member may do, for the keys that it made.
CREATE INDEX api_keys_by_app ON api_keys (app_id) WHERE app_id IS NOT NULL;
CREATE INDEX api_keys_by_creator ON api_keys (created_by) WHERE created_by IS NOT NULL;
