//! Calls of the management API of a running gateway, local or remote, for the commands of daily work.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use clap::Args;
use gateway_core::egress::EgressRule;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use super::Failure;
use super::table::{Column, table};
use crate::auth::KEY_HEADER;
use crate::config;
use crate::outbound::body::OutboundBody;
use crate::outbound::clients::Clients;
use crate::outbound::pool::UpstreamBody;

const DEFAULT_URL: &str = "http://127.0.0.1:8080";
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_ANSWER: usize = 64 << 20;
/// Items of one answer of the API, and of a list that is put together from several.
const PAGE: usize = 200;
pub const MAX_ITEMS: u32 = 10_000;
/// A page of a search may have few rows.
const MAX_PAGES: usize = 200;

/// Which gateway is asked, and how the answer is printed.
#[derive(Args)]
pub struct RemoteOptions {
    /// Address of the gateway [default: GATEWAY_URL, or http://127.0.0.1:8080]
    #[arg(long, global = true)]
    url: Option<String>,
    /// API key; GATEWAY_KEY keeps it out of the list of processes
    #[arg(long, global = true)]
    key: Option<String>,
    /// Print the JSON of the API instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

/// A gateway and the credential for it.
pub struct Remote {
    url: String,
    credential: (HeaderName, HeaderValue),
    /// The organization of a session token.
    token_org: Option<String>,
    clients: Clients,
    is_json: bool,
}

impl Remote {
    pub fn new(options: &RemoteOptions) -> Result<Self, Failure> {
        let url = options.url.clone().or_else(|| config::variable("GATEWAY_URL"));
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        let key = options.key.clone().or_else(|| config::variable("GATEWAY_KEY")).ok_or_else(|| {
            Failure::Other(
                "no API key: set GATEWAY_KEY, or pass --key; the console makes one under Keys".into(),
            )
        })?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            credential: credential(key.trim())?,
            token_org: token_org(key.trim()),
            clients: Clients::new(),
            is_json: options.json,
        })
    }

    pub async fn get(&self, path: &str, query: &[(&str, Option<String>)]) -> Result<Value, Failure> {
        self.call(Method::GET, &with_query(path, query), None).await
    }

    /// The items of a list, over as many pages as they take: an answer like the API's, with all of them in `rows`.
    pub async fn list(
        &self,
        path: &str,
        rows: &str,
        query: &[(&str, Option<String>)],
        limit: u32,
    ) -> Result<Value, Failure> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut answer, mut items) = (Value::Null, Vec::new());
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let size = PAGE.min(limit.saturating_sub(items.len())).to_string();
            let page = [("limit", Some(size)), ("cursor", cursor)];
            answer = self.get(path, &[query, &page[..]].concat()).await?;
            if let Some(found) = answer.get_mut(rows).and_then(Value::as_array_mut) {
                items.append(found);
            }
            cursor = answer["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() || items.len() >= limit {
                break;
            }
        }
        if answer.is_object() {
            answer[rows] = items.into();
        }
        Ok(answer)
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let answer = tokio::time::timeout(TIMEOUT, self.send(method, path, body)).await;
        let (status, answer) =
            answer.map_err(|_| Failure::Other(format!("{}: no answer within {TIMEOUT:?}", self.url)))??;
        let collected = Limited::new(answer, MAX_ANSWER).collect().await;
        let text = collected.map_err(|error| Failure::Other(format!("{}: {error}", self.url)))?.to_bytes();
        let value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        if status.is_success() { Ok(value) } else { Err(self.refused(status, &value)) }
    }

    /// The address of a page of the console.
    pub fn console(&self, page: &str) -> String {
        format!("{}/console/{page}", self.url)
    }

    /// Opens an event stream.
    pub async fn open(&self, path: &str) -> Result<UpstreamBody, Failure> {
        let (status, mut body) = self.send(Method::GET, path, None).await?;
        if status.is_success() {
            return Ok(body);
        }
        let text = body.frame().await.and_then(|frame| frame.ok()?.into_data().ok()).unwrap_or_default();
        Err(self.refused(status, &serde_json::from_slice(&text).unwrap_or(Value::Null)))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, UpstreamBody), Failure> {
        let uri = format!("{}/api/v1{path}", self.url).parse::<Uri>().ok();
        let uri = uri.filter(|uri| uri.authority().is_some() && uri.scheme().is_some()).ok_or_else(|| {
            Failure::Other(format!("the address {} is invalid; it must be like {DEFAULT_URL}", self.url))
        })?;
        let text = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let mut request = Request::new(OutboundBody::whole(text));
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        let (name, value) = &self.credential;
        request.headers_mut().insert(name, value.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let sent = self.clients.send(request, EgressRule::Any).await;
        let response = sent.map_err(|error| {
            let why =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            let remedy = "start it with `gateway serve`, or name another one with --url or GATEWAY_URL";
            Failure::Other(format!("cannot reach a gateway at {}: {why}; {remedy}", self.url))
        })?;
        Ok((response.status(), response.into_body()))
    }

    fn refused(&self, status: StatusCode, body: &Value) -> Failure {
        let text = |names: [&str; 2]| names.iter().find_map(|name| body[*name].as_str().map(str::to_owned));
        let message =
            text(["message", "error"]).unwrap_or_else(|| "the answer is not one of a gateway".into());
        let remedy = match status {
            StatusCode::UNAUTHORIZED => "; check GATEWAY_KEY",
            StatusCode::FORBIDDEN if message.contains("session token") => {
                "; set GATEWAY_KEY to one: the `token` in the answer of POST /api/v1/login"
            }
            StatusCode::FORBIDDEN => "; use a key with more rights (scope `*` or `read`)",
            _ => "",
        };
        Failure::Other(format!("{} answered {}: {message}{remedy}", self.url, status.as_u16()))
    }

    /// The answer as text: all of it with `--json`, otherwise a table of its rows.
    pub fn show(&self, answer: &Value, rows: &str, columns: &[Column]) -> String {
        if self.is_json {
            return pretty(answer);
        }
        let empty = Vec::new();
        let rows = answer[rows].as_array().unwrap_or(&empty);
        let count = rows.len();
        let more = match answer["next_cursor"].as_str() {
            None => String::new(),
            Some(_) if count < MAX_ITEMS as usize => {
                format!("\n(there are more; --limit takes up to {MAX_ITEMS})")
            }
            Some(_) => "\n(there are more; narrow the list, or use the API)".to_owned(),
        };
        let partial = match (answer["partial"].as_bool(), answer["scanned_to"].as_str()) {
            (Some(true), Some(time)) => {
                format!("\n(only rows since {time} were looked at; see --from and --to)")
            }
            _ => String::new(),
        };
        format!("{}{more}{partial}", table(columns, rows))
    }

    /// The same gateway with a credential for an organization. A session token is for one organization, so another one is
    /// asked for; `end` must be called on it. None: this credential will do.
    pub async fn within(&self, org: &str) -> Result<Option<Self>, Failure> {
        if self.token_org.as_deref().is_none_or(|own| own == org) {
            return Ok(None);
        }
        let switched = self.call(Method::POST, "/auth/switch-org", Some(&json!({"org_id": org}))).await?;
        let token = switched["token"].as_str().unwrap_or_default();
        Ok(Some(Self {
            url: self.url.clone(),
            credential: credential(token)?,
            token_org: Some(org.to_owned()),
            clients: Clients::new(),
            is_json: self.is_json,
        }))
    }

    /// Ends the session of the token. If that fails, it expires.
    pub async fn end(self) {
        let _ = self.call(Method::POST, "/auth/logout", None).await;
    }

    /// The answer as JSON, or what `text` makes of it.
    pub fn show_one(&self, answer: &Value, text: impl FnOnce() -> String) -> String {
        if self.is_json { pretty(answer) } else { text() }
    }
}

pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A key of the gateway, or a session token.
fn credential(key: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let is_token = key.starts_with("eyJ");
    let (name, text) = if is_token {
        (AUTHORIZATION, format!("Bearer {key}"))
    } else {
        (HeaderName::from_static(KEY_HEADER), key.to_owned())
    };
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| Failure::Other("the API key has characters that a header cannot have".into()))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// The organization in the claims of a session token. Only the service can check them.
fn token_org(token: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Value>(&claims).ok()?["org"].as_str().map(str::to_owned)
}

/// An id as a path segment.
pub fn segment(id: &str) -> String {
    percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC)
        .to_string()
        .replace("%2D", "-")
}

fn with_query(path: &str, query: &[(&str, Option<String>)]) -> String {
    let given = query.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    if text.is_empty() { path.to_owned() } else { format!("{path}?{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_parameters_are_left_out_and_others_encoded() {
        let query = [("status", Some("4xx".to_owned())), ("user", None), ("q", Some("a b&c".to_owned()))];
        assert_eq!(with_query("/logs", &query), "/logs?status=4xx&q=a+b%26c");
        assert_eq!(with_query("/logs", &[("user", None)]), "/logs");
    }

    #[test]
    fn a_session_token_names_its_organization() {
        let claims = URL_SAFE_NO_PAD.encode(r#"{"sub": "u-1", "org": "o-1"}"#);
        assert_eq!(token_org(&format!("eyJhbGciOi.{claims}.sig")).as_deref(), Some("o-1"));
        for other in ["sk-gateway-1", "eyJhbGciOi.x.y", ""] {
            assert_eq!(token_org(other), None);
        }
    }

    #[test]
    fn keys_and_tokens_have_headers_of_their_own() {
        let header = |key: &str| credential(key).ok().map(|(name, _)| name.to_string());
        assert_eq!(header("sk-gateway-1").as_deref(), Some("x-gateway-key"));
        assert_eq!(header("eyJhbGciOi").as_deref(), Some("authorization"));
        assert_eq!(header("line\nbreak"), None);
    }
}
