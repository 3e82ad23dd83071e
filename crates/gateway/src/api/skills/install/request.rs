//! What the install routes take from a request.

use std::io::Read as _;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, HOST, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde_json::json;

use crate::api::extract::{BodyLimits, FromPath, PathParam, read_body};
use crate::api::openapi::{Operation, OperationInput};
use crate::app::App;
use crate::problem::Problem;

/// A request of git names the commits that the client has.
const MAX_UPLOAD_BYTES: usize = 1 << 20;
const MAX_CLIENT_CHARS: usize = 100;

/// The token of a link and the path below it.
pub(super) struct LinkPath {
    pub token: String,
    pub path: String,
    /// The path is one of the link's repository, `/s/{token}.git/…`.
    pub is_git: bool,
}

impl LinkPath {
    /// The path below the repository.
    pub fn below(&self) -> String {
        format!("/{}", self.path)
    }
}

struct Token(String);
struct Rest(String);

macro_rules! text_params {
    ($($type:ident = $name:literal),+) => {$(
        impl FromPath for $type {
            const NAME: &'static str = $name;

            fn parse(text: &str) -> Result<Self, String> {
                Ok(Self(text.to_owned()))
            }

            fn schema() -> serde_json::Value {
                json!({"type": "string"})
            }
        }
    )+};
}
text_params!(Token = "token", Rest = "path");

impl<S: Send + Sync> FromRequestParts<S> for LinkPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let PathParam(Token(token)) = PathParam::from_request_parts(parts, state).await?;
        let PathParam(Rest(path)) = PathParam::from_request_parts(parts, state).await?;
        Ok(match token.strip_suffix(".git") {
            Some(token) => Self { token: token.to_owned(), path, is_git: true },
            None => Self { token, path, is_git: false },
        })
    }
}

impl OperationInput for LinkPath {
    fn describe(operation: &mut Operation<'_>) {
        <PathParam<Token> as OperationInput>::describe(operation);
        <PathParam<Rest> as OperationInput>::describe(operation);
    }
}

/// Who fetches, and how the gateway is reached from there.
pub(in crate::api::skills) struct FetchHead {
    /// The address of the gateway, without a path.
    pub origin: String,
    /// The path of the request, for links within the same tree.
    pub path: String,
    /// The program, without its details.
    pub client: String,
    pub query: String,
}

impl FetchHead {
    /// The address of the tree, given the path of the request below it.
    pub fn base(&self, below: &str) -> String {
        let root = self.path.strip_suffix(below).unwrap_or(&self.path);
        format!("{}{}", self.origin, root.trim_end_matches('/'))
    }
}

impl FromRequestParts<Arc<App>> for FetchHead {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let client = parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
        Ok(Self {
            origin: origin(app, parts),
            path: parts.uri.path().to_owned(),
            client: client.chars().take(MAX_CLIENT_CHARS).collect(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
        })
    }
}

impl OperationInput for FetchHead {
    fn describe(_: &mut Operation<'_>) {}
}

/// The outside address of the gateway: the setting, or what the client itself uses. A client that lies gets links that do
/// not work for it; the responses are not cached for others.
pub(super) fn origin(app: &App, parts: &Parts) -> String {
    if let Some(url) = &app.services.config.public_url {
        return url.clone();
    }
    let text = |headers: &HeaderMap, name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let is_forwarded_tls = text(&parts.headers, "x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let scheme = if app.services.config.tls.is_some() || is_forwarded_tls { "https" } else { "http" };
    let host = parts.uri.authority().map(ToString::to_string).or_else(|| text(&parts.headers, HOST.as_str()));
    let host = host.filter(|host| host.parse::<http::uri::Authority>().is_ok());
    format!("{scheme}://{}", host.unwrap_or_else(|| app.services.config.listen.to_string()))
}

/// The body of `git-upload-pack`. Git compresses long ones.
pub(in crate::api::skills) struct UploadBody(pub Vec<u8>);

impl FromRequest<Arc<App>> for UploadBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Problem> {
        let encoding = request.headers().get(CONTENT_ENCODING).cloned();
        let bytes = read_body(request, BodyLimits::new(MAX_UPLOAD_BYTES)).await?;
        match encoding.as_ref().map(http::HeaderValue::as_bytes) {
            None | Some(b"identity") => Ok(Self(bytes.to_vec())),
            Some(b"gzip" | b"x-gzip") => decompress(&bytes).map(Self),
            Some(_) => {
                let why = "the body has an unknown Content-Encoding; use gzip or none";
                Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", why))
            }
        }
    }
}

fn decompress(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut plain = Vec::new();
    let limit = u64::try_from(MAX_UPLOAD_BYTES).unwrap_or(u64::MAX);
    let read = GzDecoder::new(bytes).take(limit + 1).read_to_end(&mut plain);
    read.map_err(|_| Problem::bad_request("the body is not valid gzip"))?;
    if plain.len() > MAX_UPLOAD_BYTES {
        return Err(Problem::too_large(MAX_UPLOAD_BYTES));
    }
    Ok(plain)
}

impl OperationInput for UploadBody {
    fn describe(operation: &mut Operation<'_>) {
        operation.request_body = Some(json!({
            "required": true,
            "content": {"application/x-git-upload-pack-request": {"schema": {"type": "string", "format": "binary"}}},
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_compressed_body_is_bounded() {
        let compress = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(decompress(&compress(b"0000")).unwrap(), b"0000");
        assert_eq!(decompress(&compress(&vec![0; MAX_UPLOAD_BYTES + 1])).unwrap_err().status, 413);
        assert_eq!(decompress(b"no gzip").unwrap_err().status, 400);
    }

    #[test]
    fn the_base_is_the_address_without_the_path_below() {
        let head = FetchHead {
            origin: "https://h".into(),
            path: "/s/t/marketplace.json".into(),
            client: String::new(),
            query: String::new(),
        };
        assert_eq!(head.base("marketplace.json"), "https://h/s/t");
    }
}
