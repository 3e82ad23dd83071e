//! The web console: the files that `console/` is built into, served under `/console`. They carry no data, so they need
//! no authentication; what the console shows it asks of the public API. Every path below `/console` that is no file is
//! a page of the console and gets its one document.

mod choose;
mod files;
mod page;
mod walk;

use std::collections::HashMap;
use std::path::Path;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::problem::{ApiResult, Problem};
use files::File;
use page::Page;

/// Where the console begins.
pub const HOME: &str = "/console/";

/// What a release build carries; empty in a debug build, which has the directory instead.
const EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

const SAFETY: [(HeaderName, &str); 4] = [
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Does this path belong to the console, whatever the method?
pub fn claims(path: &str) -> bool {
    path == "/console" || path.starts_with(HOME)
}

/// The built console, in memory.
pub struct Console {
    files: HashMap<String, File>,
    page: Page,
}

impl Console {
    /// What was built into the binary, or for a debug build what is in the directory now.
    pub fn load() -> Self {
        match option_env!("CONSOLE_DIST") {
            Some(directory) => Self::read(Path::new(directory)),
            None => Self::embedded(EMBEDDED),
        }
    }

    /// A console from a directory. One that is missing or cannot be read is a console that is not built.
    pub fn read(directory: &Path) -> Self {
        Self::new(files::read(directory).unwrap_or_default())
    }

    fn embedded(table: &'static [(&'static str, &'static [u8])]) -> Self {
        Self::new(table.iter().map(|(name, bytes)| ((*name).to_owned(), Bytes::from_static(bytes))).collect())
    }

    fn new(mut contents: HashMap<String, Bytes>) -> Self {
        match contents.remove("index.html") {
            Some(index) => Self { files: files::pair_up(contents), page: Page::new(&index) },
            None => Self { files: HashMap::new(), page: Page::unbuilt() },
        }
    }

    /// Answers a request for a path that the console claims.
    pub fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> ApiResult<Response> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Problem::method_not_allowed(Some(HeaderValue::from_static("GET, HEAD"))));
        }
        let Some(name) = uri.path().strip_prefix(HOME) else {
            return to_home(uri);
        };
        let mut response = match self.files.get(name) {
            Some(file) => file.answer(headers),
            None if name.starts_with("assets/") => return Err(no_such_file()),
            None => self.page.answer()?,
        };
        for (name, value) in SAFETY {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if *method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        Ok(response)
    }
}

/// A page or file whose length a HEAD request is told as well.
fn response(body: Bytes) -> Response {
    let length = body.len();
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

fn to_home(uri: &Uri) -> ApiResult<Response> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let place = HeaderValue::try_from(format!("{HOME}{query}")).map_err(Problem::internal)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(LOCATION, place);
    Ok(response)
}

/// An old page asks for a file of a build that is gone. The document in its place would be a script that fails to parse.
fn no_such_file() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such file in this version of the console")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_fixture.rs"));

    #[test]
    fn the_paths_below_console_are_claimed_and_no_others() {
        for path in ["/console", "/console/", "/console/logs", "/console/assets/x.js"] {
            assert!(claims(path), "{path}");
        }
        for path in ["/", "/consoles", "/console.html", "/v1/console/", "/api/v1/console"] {
            assert!(!claims(path), "{path}");
        }
    }

    #[test]
    fn what_is_embedded_is_what_the_directory_holds() {
        let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/console"));
        let (embedded, read) = (Console::embedded(FIXTURE), Console::read(directory));
        assert!(!embedded.files.is_empty());
        assert_eq!(embedded.files, read.files);
        assert_eq!(embedded.page, read.page);
    }
}
