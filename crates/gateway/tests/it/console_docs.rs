//! The documentation site under `/console/docs`: pages, compression, caching and the content security policy.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;

use gateway::console::Console;
use gateway::problem::ErrorFormat;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::BodyExt as _;

use crate::on_both;

struct Got {
    status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

fn compressed(text: &str) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut writer = brotli::CompressorWriter::new(&mut packed, 4096, 5, 20);
    writer.write_all(text.as_bytes()).unwrap();
    drop(writer);
    packed
}

fn site(directory: &Path) -> Console {
    let put = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for name in ["index.html", "404.html", "budgets.html", "api/index.html", "assets/app.1a2b.js"] {
        put(&format!("{name}.br"), &compressed(&format!("<html>{name}</html>")));
    }
    put("picture.png", b"no text");
    Console::read(Path::new("nothing-here")).with_docs(directory)
}

async fn ask(console: &Console, path: &str, headers: &[(HeaderName, &str)]) -> Got {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect();
    let outcome = console.respond(&Method::GET, &path.parse().unwrap(), &headers);
    let (head, body) = outcome.unwrap_or_else(|problem| problem.render(ErrorFormat::Code)).into_parts();
    let headers =
        head.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    Got {
        status: head.status.as_u16(),
        headers: headers.collect(),
        body: body.collect().await.unwrap().to_bytes().into(),
    }
}

#[tokio::test]
async fn pages_have_addresses_without_a_suffix() {
    let directory = tempfile::tempdir().unwrap();
    let console = site(directory.path());
    for (path, status, file) in [
        ("/console/docs/", 200, "index.html"),
        ("/console/docs/budgets", 200, "budgets.html"),
        ("/console/docs/budgets.html", 200, "budgets.html"),
        ("/console/docs/api/", 200, "api/index.html"),
        ("/console/docs/nowhere", 404, "404.html"),
    ] {
        let got = ask(&console, path, &[]).await;
        assert_eq!(
            (got.status, String::from_utf8(got.body.clone()).unwrap()),
            (status, format!("<html>{file}</html>"))
        );
        assert_eq!(got.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(got.header("cache-control"), "no-cache");
        assert_eq!(got.header("x-content-type-options"), "nosniff");
        let policy = got.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    let redirect = ask(&console, "/console/docs", &[]).await;
    assert_eq!((redirect.status, redirect.header("location")), (308, "/console/docs/"));
    assert_eq!(ask(&console, "/console/docs/assets/gone.js", &[]).await.status, 404);
    assert_eq!(ask(&console, "/console/docs/picture.png", &[]).await.body, b"no text");
}

#[tokio::test]
async fn a_client_that_accepts_brotli_gets_the_stored_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let console = site(directory.path());
    let path = "/console/docs/assets/app.1a2b.js";
    let packed = ask(&console, path, &[(ACCEPT_ENCODING, "gzip, br")]).await;
    assert_eq!(packed.header("content-encoding"), "br");
    assert_eq!(packed.body, compressed("<html>assets/app.1a2b.js</html>"));
    let plain = ask(&console, path, &[(ACCEPT_ENCODING, "gzip")]).await;
    assert_eq!(plain.header("content-encoding"), "");
    assert_eq!(plain.body, b"<html>assets/app.1a2b.js</html>");
    for got in [&packed, &plain] {
        assert_eq!(got.header("cache-control"), "public, max-age=31536000, immutable");
        assert_eq!(got.header("content-type"), "text/javascript; charset=utf-8");
        assert_eq!(got.header("vary"), "accept-encoding");
    }
    assert_ne!(packed.header("etag"), plain.header("etag"));
    let again = [(ACCEPT_ENCODING, "br"), (IF_NONE_MATCH, packed.header("etag"))];
    let unchanged = ask(&console, path, &again).await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
}

#[tokio::test]
async fn a_site_that_was_not_built_says_so() {
    let console = Console::read(Path::new("nothing-here"));
    let got = ask(&console, "/console/docs/budgets", &[]).await;
    assert_eq!(got.status, 200);
    assert!(String::from_utf8(got.body).unwrap().contains("make docs"));
}

on_both!(the_documentation_needs_no_authentication, |app| async move {
    let answer = app.get("/console/docs/").send().await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("<html"), "{}", answer.text());
    app.call(Method::POST, "/console/docs/").send().await.expect_error(405, "method_not_allowed");
});
