-- The definitions of the approved tools of a server that pins them, apart from the server, because they may be large and
-- are needed only to show what has changed. tools is a JSON object by name.
CREATE TABLE mcp_approved_tools (
    org_id TEXT NOT NULL,
    server TEXT NOT NULL,
    tools TEXT NOT NULL,
    PRIMARY KEY (org_id, server),
    FOREIGN KEY (org_id, server) REFERENCES mcp_servers (org_id, name) ON DELETE CASCADE
);
