-- MCP servers of organizations. definition is JSON (`gateway_core::mcp`). secrets is an encrypted JSON object. pins is
-- JSON: the hashes of the approved tools by name, null until the tools were read for the first time.
CREATE TABLE mcp_servers (
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    secrets TEXT,
    pins TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, name)
);

-- Credentials of single callers at a server: of a user, or of a key with the end user that it names. headers is an
-- encrypted JSON object.
CREATE TABLE mcp_connections (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES orgs (id) ON DELETE CASCADE,
    server TEXT NOT NULL,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    key_id TEXT REFERENCES api_keys (id) ON DELETE CASCADE,
    caller TEXT NOT NULL,
    headers TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, server, caller),
    FOREIGN KEY (org_id, server) REFERENCES mcp_servers (org_id, name) ON DELETE CASCADE
);
CREATE INDEX mcp_connections_by_user ON mcp_connections (user_id);
CREATE INDEX mcp_connections_by_key ON mcp_connections (key_id);
