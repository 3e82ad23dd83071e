//! Calls of the management API of a running gateway, local or remote, for the commands of daily work.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use gateway_core::egress::EgressRule;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

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
            clients: Clients::new(),
            is_json: options.json,
        })
    }

    pub async fn get(&self, path: &str, query: &[(&str, Option<String>)]) -> Result<Value, Failure> {
        self.call(Method::GET, &with_query(path, query), None).await
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
        let more =
            answer["next_cursor"].as_str().map(|_| "\n(there are more; see --limit)").unwrap_or_default();
        format!("{}{more}", table(columns, rows))
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
    fn keys_and_tokens_have_headers_of_their_own() {
        let header = |key: &str| credential(key).ok().map(|(name, _)| name.to_string());
        assert_eq!(header("sk-gateway-1").as_deref(), Some("x-gateway-key"));
        assert_eq!(header("eyJhbGciOi").as_deref(), Some("authorization"));
        assert_eq!(header("line\nbreak"), None);
    }
}
