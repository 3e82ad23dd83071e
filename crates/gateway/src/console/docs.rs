//! The documentation site under `/console/docs`. It is embedded in its compressed form only, which keeps the binary
//! small; a client that does not accept it gets the decompressed file.

use std::collections::HashMap;
use std::io::Read as _;

use axum::response::Response;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LOCATION, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};

use super::files::{cache_control, content_type};
use super::negotiation::{Encoding, matches_etag, preferred};
use super::page::Page;
use super::response;
use crate::problem::{ApiResult, Problem};

/// The path of the site.
const DOCS: &str = "/console/docs/";

/// Everything comes from the site itself. It has neither inline scripts nor inline styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const NOT_FOUND_PAGE: &str = "404.html";

/// True if the path belongs to the site.
pub fn is_docs_path(path: &str) -> bool {
    path.starts_with(DOCS) || path == DOCS.trim_end_matches('/')
}

#[derive(Debug, PartialEq, Eq)]
struct DocsFile {
    bytes: Bytes,
    is_compressed: bool,
    tag: String,
}

/// The built site, in memory, by the path below `/console/docs/`.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Docs {
    files: HashMap<String, DocsFile>,
}

impl Docs {
    pub fn new(contents: HashMap<String, Bytes>) -> Self {
        let files = contents.into_iter().map(|(name, bytes)| {
            let (name, encoding) = Encoding::of_file(&name);
            let tag = hex::encode(&Sha256::digest(&bytes)[..12]);
            (name.to_owned(), DocsFile { bytes, is_compressed: encoding == Encoding::Brotli, tag })
        });
        Self { files: files.collect() }
    }

    /// Responds to a request for a path of the site.
    pub fn respond(&self, path: &str, headers: &HeaderMap) -> ApiResult<Response> {
        let Some(name) = path.strip_prefix(DOCS) else {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(LOCATION, HeaderValue::from_static(DOCS));
            return Ok(response);
        };
        self.file(name, headers)
    }

    fn file(&self, name: &str, headers: &HeaderMap) -> ApiResult<Response> {
        if self.files.is_empty() {
            return Page::docs_not_built().respond();
        }
        let candidates = [name.to_owned(), format!("{name}.html"), format!("{name}index.html")];
        let found = candidates.into_iter().find(|name| self.files.contains_key(name));
        if found.is_none() && name.starts_with("assets/") {
            return Err(super::file_not_found());
        }
        let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let name = found.unwrap_or_else(|| NOT_FOUND_PAGE.to_owned());
        let file = self.files.get(&name).ok_or_else(super::file_not_found)?;
        let mut response = file.respond(&name, headers)?;
        if status != StatusCode::OK {
            *response.status_mut() = status;
        }
        let is_page = name.rsplit_once('.').is_some_and(|(_, extension)| extension == "html");
        Ok(if is_page { page(response) } else { response })
    }
}

impl DocsFile {
    /// Responds with the stored bytes if the client accepts them, or 304 if it has them.
    fn respond(&self, name: &str, headers: &HeaderMap) -> ApiResult<Response> {
        let variants = [(Encoding::Brotli, Bytes::new()), (Encoding::Identity, Bytes::new())];
        let is_sent_compressed = self.is_compressed
            && preferred(headers, &variants).is_some_and(|(encoding, _)| *encoding == Encoding::Brotli);
        let tag =
            if is_sent_compressed { format!("\"{}-br\"", self.tag) } else { format!("\"{}\"", self.tag) };
        let is_unchanged = matches_etag(headers, &tag);
        let mut response = match (is_unchanged, self.is_compressed && !is_sent_compressed) {
            (true, _) => Response::default(),
            (false, false) => response(self.bytes.clone()),
            (false, true) => response(decompressed(&self.bytes)?),
        };
        let sent = response.headers_mut();
        sent.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control(name)));
        sent.insert(VARY, HeaderValue::from_static("accept-encoding"));
        sent.insert(ETAG, HeaderValue::try_from(tag).map_err(Problem::internal)?);
        if is_unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
        sent.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
        if is_sent_compressed {
            sent.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
        }
        Ok(response)
    }
}

/// The bytes are from the build, so their size needs no limit.
fn decompressed(bytes: &[u8]) -> ApiResult<Bytes> {
    let mut text = Vec::new();
    brotli_decompressor::Decompressor::new(bytes, 4096).read_to_end(&mut text).map_err(Problem::internal)?;
    Ok(text.into())
}

fn page(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
