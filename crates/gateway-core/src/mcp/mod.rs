//! The rules of the MCP gateway: JSON-RPC messages, protocol revisions, names of several servers in one list, definitions
//! of servers, and which tools a caller sees. Parameters and results are kept as JSON text, because the gateway changes
//! few of their members and they may be large.

mod definition;
mod headers;
mod listing;
mod message;
mod names;
mod revision;
mod skills;
mod tools;
mod translate;

pub use definition::{
    Auth, CallerIdentity, Definition, MAX_SERVERS, MAX_TIMEOUT_MS, Transport, check_server_name,
};
pub use headers::{decode_header, encode_header, header_value_of};
pub use listing::{Cursor, PAGE_BYTES, PAGE_SIZE, page};
pub use message::{Incoming, Members, RequestId, RpcError, codes, parse, raw, response_text};
pub use names::{RESERVED_SERVER, namespaced, namespaced_uri, prompt_name, split_uri, unscoped_uri};
pub use revision::{Era, HeaderClaims, LATEST_LEGACY, MODERN, REVISIONS, meta, negotiate, select};
pub use skills::{
    SKILLS_EXTENSION, SkillManifest, file_uri, has_skills, mime_type, own_root, parse_own, parse_shelf,
    query_words, relevance, shelf_root,
};
pub use tools::{Finding, Glob, ToolFilter, findings, tool_hash};
pub use translate::{
    ClientFacts, for_legacy_server, for_modern_server, is_input_required, refused_input, result_for,
    scoped_result, scoped_skill,
};
