//! The HTML document of the console. Every response has a new nonce: the content security policy allows only styles
//! with that nonce, and only scripts that are files of the console.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};

use super::response;
use crate::problem::{ApiResult, Problem};

/// The placeholder that the build writes for the nonce.
const NONCE_PLACEHOLDER: &str = "__CSP_NONCE__";

/// The document, split at the nonce placeholders.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pieces: Vec<String>,
}

impl Page {
    pub fn new(document: &Bytes) -> Self {
        let text = String::from_utf8_lossy(document);
        Self { pieces: text.split(NONCE_PLACEHOLDER).map(str::to_owned).collect() }
    }

    /// The page that is served if the console was not built.
    pub fn not_built() -> Self {
        Self::new(&Bytes::from_static(include_bytes!("not_built.html")))
    }

    /// The page that is served if the documentation site was not built.
    pub fn docs_not_built() -> Self {
        Self::new(&Bytes::from_static(include_bytes!("docs_not_built.html")))
    }

    pub fn respond(&self) -> ApiResult<Response> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(Problem::internal)?;
        let nonce = STANDARD.encode(random);
        let policy = HeaderValue::try_from(content_security_policy(&nonce)).map_err(Problem::internal)?;
        let mut response = response(self.pieces.join(&nonce).into());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        Ok(response)
    }
}

/// Allows only the console's files, the API, and images and audio inside messages. Forms cannot be submitted by the
/// browser, so a password never ends up in a URL.
fn content_security_policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; connect-src 'self'; \
         img-src 'self' data: blob:; media-src data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
}
