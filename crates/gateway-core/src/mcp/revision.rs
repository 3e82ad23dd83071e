//! Revisions of the protocol on one URL. A request of 2026-07-28 names its revision in `_meta` and needs no session;
//! older clients begin with `initialize` and repeat the negotiated revision in a header.

use serde_json::json;

use super::headers::decode_header;
use super::message::{Members, RpcError, codes};

/// The revision without `initialize` and sessions.
pub const MODERN: &str = "2026-07-28";
/// The newest revision with `initialize`.
pub const LATEST_LEGACY: &str = "2025-11-25";
/// Clients that send no header speak this one.
const WITHOUT_HEADER: &str = "2025-03-26";
/// All that are served, newest first.
pub const REVISIONS: [&str; 4] = [MODERN, LATEST_LEGACY, "2025-06-18", WITHOUT_HEADER];

/// Members of `_meta`.
pub mod meta {
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    pub const STALE: &str = "gateway/stale";
    pub const VERDICT: &str = "ai.gateway/verdict";
}

/// How a message is to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Modern,
    /// With the revision that the client speaks.
    Legacy(&'static str),
}

impl Era {
    pub fn is_modern(self) -> bool {
        self == Self::Modern
    }

    pub fn revision(self) -> &'static str {
        match self {
            Self::Modern => MODERN,
            Self::Legacy(revision) => revision,
        }
    }
}

/// What the headers of a request say about its body.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeaderClaims<'a> {
    pub protocol_version: Option<&'a str>,
    pub method: Option<&'a str>,
    pub name: Option<&'a str>,
}

/// The revision that `initialize` answers with: the one asked for if it is known, else the newest with `initialize`.
pub fn negotiate(asked: Option<&str>) -> &'static str {
    let mut known = REVISIONS.into_iter().filter(|revision| *revision != MODERN);
    known.find(|revision| Some(*revision) == asked).unwrap_or(LATEST_LEGACY)
}

/// The era of a request. The headers of a modern one must say what its body says.
pub fn select(claims: HeaderClaims<'_>, method: &str, params: &Members) -> Result<Era, RpcError> {
    let in_meta = params.members("_meta").and_then(|meta| meta.text(meta::PROTOCOL_VERSION));
    let known = |version: &str| REVISIONS.into_iter().find(|revision| *revision == version);
    let Some(in_meta) = in_meta else {
        if method == "initialize" {
            return Ok(Era::Legacy(negotiate(params.text("protocolVersion").as_deref())));
        }
        return match claims.protocol_version {
            None => Ok(Era::Legacy(WITHOUT_HEADER)),
            Some(MODERN) => Err(missing(meta::PROTOCOL_VERSION)),
            Some(version) => known(version).map(Era::Legacy).ok_or_else(|| unsupported(version)),
        };
    };
    if claims.protocol_version != Some(in_meta.as_str()) {
        return Err(mismatch(
            "MCP-Protocol-Version",
            "it must equal the protocol version in the body's _meta",
        ));
    }
    if in_meta != MODERN {
        return Err(unsupported(&in_meta));
    }
    let capabilities = params.members("_meta").and_then(|own| own.value(meta::CLIENT_CAPABILITIES));
    if !capabilities.is_some_and(|capabilities| capabilities.is_object()) {
        return Err(missing(meta::CLIENT_CAPABILITIES));
    }
    if claims.method != Some(method) {
        return Err(mismatch("Mcp-Method", "it must equal the method of the body"));
    }
    let named = match method {
        "tools/call" | "prompts/get" => params.text("name"),
        "resources/read" | "skills/get" => params.text("uri"),
        _ => None,
    };
    if let Some(named) = named
        && claims.name.is_none_or(|given| decode_header(given).as_deref() != Some(&*named))
        // The extension of skills does not ask for the header.
        && !(method == "skills/get" && claims.name.is_none())
    {
        return Err(mismatch("Mcp-Name", "it must equal the name or uri of the body"));
    }
    Ok(Era::Modern)
}

fn mismatch(header: &str, why: &str) -> RpcError {
    RpcError::new(codes::HEADER_MISMATCH, format!("Header mismatch: {header}: {why}"))
}

/// A request of 2026-07-28 without what each of them must carry.
fn missing(member: &str) -> RpcError {
    RpcError::invalid_params(format!("Invalid request: _meta must have `{member}`"))
}

fn unsupported(version: &str) -> RpcError {
    let requested: String = version.chars().take(64).collect();
    RpcError::new(codes::UNSUPPORTED_VERSION, "Unsupported protocol version")
        .with_data(json!({"supported": REVISIONS, "requested": requested}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str) -> Members {
        serde_json::from_str(text).unwrap()
    }

    fn modern(rest: &str) -> Members {
        let (version, capabilities) = (meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES);
        params(&format!(r#"{{"_meta":{{"{version}":"{MODERN}","{capabilities}":{{}}}}{rest}}}"#))
    }

    fn claims<'a>(
        version: Option<&'a str>,
        method: Option<&'a str>,
        name: Option<&'a str>,
    ) -> HeaderClaims<'a> {
        HeaderClaims { protocol_version: version, method, name }
    }

    #[test]
    fn the_body_and_the_header_decide_on_the_era() {
        let empty = Members::default();
        let select = |version, params: &Members| {
            select(claims(version, Some("tools/list"), None), "tools/list", params)
        };
        assert_eq!(select(None, &empty), Ok(Era::Legacy("2025-03-26")));
        assert_eq!(select(Some("2025-06-18"), &empty), Ok(Era::Legacy("2025-06-18")));
        assert_eq!(select(Some(MODERN), &modern("")), Ok(Era::Modern));
        let unknown = select(Some("2024-01-01"), &empty).unwrap_err();
        assert_eq!(unknown.code, codes::UNSUPPORTED_VERSION);
        assert_eq!(unknown.data.unwrap()["supported"], json!(REVISIONS));
        let no_capabilities = params(&format!(r#"{{"_meta":{{"{}":"{MODERN}"}}}}"#, meta::PROTOCOL_VERSION));
        for params in [&empty, &no_capabilities] {
            assert_eq!(select(Some(MODERN), params).unwrap_err().code, codes::INVALID_PARAMS);
        }
        for (version, params) in [(None, &modern("")), (Some("2025-11-25"), &modern(""))] {
            assert_eq!(select(version, params).unwrap_err().code, codes::HEADER_MISMATCH, "{version:?}");
        }
        let old = params(&format!(r#"{{"_meta":{{"{}":"2025-11-25"}}}}"#, meta::PROTOCOL_VERSION));
        assert_eq!(select(Some("2025-11-25"), &old).unwrap_err().code, codes::UNSUPPORTED_VERSION);
    }

    #[test]
    fn initialize_is_answered_with_a_revision_that_has_it() {
        for (asked, given) in [
            ("2025-06-18", "2025-06-18"),
            ("2025-03-26", "2025-03-26"),
            (MODERN, LATEST_LEGACY),
            ("2099-01-01", LATEST_LEGACY),
        ] {
            let params = params(&format!(r#"{{"protocolVersion":"{asked}"}}"#));
            let era = select(HeaderClaims::default(), "initialize", &params);
            assert_eq!(era, Ok(Era::Legacy(given)), "{asked}");
        }
    }

    #[test]
    fn the_headers_of_a_modern_request_equal_its_body() {
        let call = modern(r#","name":"do it""#);
        let check = |method, name| {
            select(claims(Some(MODERN), method, name), "tools/call", &call).map_err(|e| e.code)
        };
        assert_eq!(check(Some("tools/call"), Some("do it")), Ok(Era::Modern));
        assert_eq!(check(Some("tools/call"), Some("=?base64?ZG8gaXQ=?=")), Ok(Era::Modern));
        for (method, name) in [
            (None, Some("do it")),
            (Some("tools/list"), Some("do it")),
            (Some("tools/call"), None),
            (Some("tools/call"), Some("other")),
        ] {
            assert_eq!(check(method, name), Err(codes::HEADER_MISMATCH), "{method:?} {name:?}");
        }
    }
}
