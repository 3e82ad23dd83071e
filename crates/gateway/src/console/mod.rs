//! Serves the built web console under `/console`, and the documentation site under `/console/docs`. The files contain no
//! data, so they need no authentication; the console loads its data from the public API. Every other path below
//! `/console` returns the HTML document of the console.

mod docs;
mod files;
mod list_files;
mod negotiation;
mod page;

use std::collections::HashMap;
use std::path::Path;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::problem::{ApiResult, Problem};
use docs::Docs;
use files::StaticFile;
pub use negotiation::{Encoding, preferred_encoding};
use page::Page;

/// The path of the console.
pub const HOME: &str = "/console/";

/// The files embedded in a release build. A debug build reads the directory instead.
const EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));
const EMBEDDED_DOCS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/docs.rs"));

const SECURITY_HEADERS: [(HeaderName, &str); 4] = [
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// True if the path belongs to the console, for any method.
pub fn is_console_path(path: &str) -> bool {
    path == "/console" || path.starts_with(HOME)
}

/// The built console, in memory.
pub struct Console {
    files: HashMap<String, StaticFile>,
    page: Page,
    docs: Docs,
}

impl Console {
    /// Loads the embedded files, or in a debug build the files of the directory.
    pub fn load() -> Self {
        let console = match option_env!("CONSOLE_DIST") {
            Some(directory) => Self::read(Path::new(directory)),
            None => Self::new(table(EMBEDDED)),
        };
        match option_env!("DOCS_DIST") {
            Some(directory) => console.with_docs(Path::new(directory)),
            None => Self { docs: Docs::new(table(EMBEDDED_DOCS)), ..console },
        }
    }

    /// Loads the console from a directory. If it cannot be read, the console counts as not built.
    pub fn read(directory: &Path) -> Self {
        Self::new(files::read(directory).unwrap_or_default())
    }

    /// Adds the documentation site of a directory. If it cannot be read, the site counts as not built.
    pub fn with_docs(self, directory: &Path) -> Self {
        Self { docs: Docs::new(files::read(directory).unwrap_or_default()), ..self }
    }

    fn new(mut contents: HashMap<String, Bytes>) -> Self {
        match contents.remove("index.html") {
            Some(index) => Self {
                files: files::group_variants(contents),
                page: Page::new(&index),
                docs: Docs::default(),
            },
            None => Self { files: HashMap::new(), page: Page::not_built(), docs: Docs::default() },
        }
    }

    /// Responds to a request for a console path.
    pub fn respond(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> ApiResult<Response> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Problem::method_not_allowed(Some(HeaderValue::from_static("GET, HEAD"))));
        }
        let Some(name) = uri.path().strip_prefix(HOME) else {
            return redirect_home(uri);
        };
        let mut response = match self.files.get(name) {
            _ if docs::is_docs_path(uri.path()) => self.docs.respond(uri.path(), headers)?,
            Some(file) => file.respond(headers),
            None if name.starts_with("assets/") => return Err(file_not_found()),
            None => self.page.respond()?,
        };
        for (name, value) in SECURITY_HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if *method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        Ok(response)
    }
}

fn table(embedded: &'static [(&'static str, &'static [u8])]) -> HashMap<String, Bytes> {
    embedded.iter().map(|(name, bytes)| ((*name).to_owned(), Bytes::from_static(bytes))).collect()
}

/// A response with a content length, which HEAD requests need too.
fn response(body: Bytes) -> Response {
    let length = body.len();
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

fn redirect_home(uri: &Uri) -> ApiResult<Response> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = HeaderValue::try_from(format!("{HOME}{query}")).map_err(Problem::internal)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// An open page may request a file of an earlier build. Returning the HTML document would make the script fail to
/// parse.
fn file_not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", "this version of the console has no such file")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_fixture.rs"));

    #[test]
    fn only_paths_below_console_belong_to_it() {
        for path in ["/console", "/console/", "/console/logs", "/console/assets/x.js"] {
            assert!(is_console_path(path), "{path}");
        }
        for path in ["/", "/consoles", "/console.html", "/v1/console/", "/api/v1/console"] {
            assert!(!is_console_path(path), "{path}");
        }
    }

    #[test]
    fn embedded_files_equal_the_files_of_the_directory() {
        let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/console"));
        let (embedded, read) = (Console::new(table(FIXTURE)), Console::read(directory));
        assert!(!embedded.files.is_empty());
        assert_eq!(embedded.files, read.files);
        assert_eq!(embedded.page, read.page);
    }
}
