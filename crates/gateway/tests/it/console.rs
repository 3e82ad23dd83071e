//! The web console under `/console`: files, caching, compression and the content security policy. Checks that hold
//! without a built console use HTTP; the rest use a fixture directory.

use std::path::Path;

use gateway::console::Console;
use gateway::problem::{ApiResult, ErrorFormat};
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;

use crate::on_both;

const APP: &str = "/console/assets/app-1a2b3c4d.js";

fn fixture() -> Console {
    Console::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/console")))
}

fn not_built() -> Console {
    Console::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/nothing-here")))
}

struct Got {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn ask_with(
    console: &Console,
    method: Method,
    path: &str,
    headers: &[(http::HeaderName, &'static str)],
) -> Got {
    let headers =
        headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
    let outcome: ApiResult<Response<_>> = console.respond(&method, &path.parse().unwrap(), &headers);
    let (head, body) = outcome.unwrap_or_else(|problem| problem.render(ErrorFormat::Code)).into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Got {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(bytes.into()).unwrap(),
    }
}

async fn ask(console: &Console, path: &str) -> Got {
    ask_with(console, Method::GET, path, &[]).await
}

fn nonce_of(policy: &str) -> &str {
    policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap()
}

on_both!(the_console_needs_no_authentication_and_is_never_proxied, |app| async move {
    for path in ["/console/", "/console/logs?log=1", "/console/prompts/a/b"] {
        let answer = app.get(path).header("x-gateway-provider", "sandbox").send().await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(answer.header("x-request-id").is_some());
        assert!(answer.text().contains("<html"), "{}", answer.text());
    }
    app.get("/console/assets/missing.js").send().await.expect_error(404, "not_found");
});

on_both!(the_console_takes_no_other_methods, |app| async move {
    let ada = app.signup("acme").await;
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        for path in ["/console", "/console/", "/console/assets/x.js"] {
            let call = app.call(method.clone(), path).key(&ada.api_key);
            let answer = call.header("x-gateway-provider", "sandbox").send().await;
            answer.expect_error(405, "method_not_allowed");
            assert_eq!(answer.header("allow"), Some("GET, HEAD"));
        }
    }
});

on_both!(the_redirect_to_the_console_keeps_the_query, |app| async move {
    assert_eq!(app.get("/").send().await.header("location"), Some("/console/"));
    for (from, to) in [("/console", "/console/"), ("/console?log=7", "/console/?log=7")] {
        let answer = app.get(from).send().await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (308, Some(to)));
    }
});

on_both!(head_returns_the_length_without_a_body, |app| async move {
    let answer = app.call(Method::HEAD, "/console/").send().await;
    let whole = app.get("/console/").send().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-length"), whole.header("content-length"));
    assert_eq!((answer.text().as_str(), whole.text().is_empty()), ("", false));
});

#[tokio::test]
async fn every_path_that_is_no_file_is_a_page_of_the_console() {
    let console = fixture();
    for path in [
        "/console/",
        "/console/logs",
        "/console/prompts/a/b.c",
        "/console/index.html",
        "/console/.vite/manifest.json",
    ] {
        let got = ask(&console, path).await;
        assert_eq!((got.status, got.header("cache-control")), (200, Some("no-cache")), "{path}");
        assert!(got.body.contains("<title>Console</title>"), "{path}");
    }
}

#[tokio::test]
async fn every_document_has_its_own_nonce_in_the_policy_and_in_the_text() {
    let console = fixture();
    let (first, second) = (ask(&console, "/console/").await, ask(&console, "/console/").await);
    let nonces = [&first, &second].map(|got| nonce_of(got.header("content-security-policy").unwrap()));
    assert_ne!(nonces[0], nonces[1]);
    assert_eq!(first.body.matches(&format!("nonce=\"{}\"", nonces[0])).count(), 2);
    assert!(!first.body.contains("__CSP_NONCE__"));
    assert_eq!(first.header("etag"), None, "a document with a nonce is no two times the same");
}

#[tokio::test]
async fn files_with_a_hash_in_their_name_are_kept_for_ever_and_others_are_checked() {
    let console = fixture();
    let app = ask(&console, APP).await;
    assert_eq!((app.status, app.body.as_str()), (200, "document.title = \"app\";\n"));
    assert_eq!(app.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(app.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(app.header("x-content-type-options"), Some("nosniff"));
    let theme = ask(&console, "/console/theme.js").await;
    assert_eq!((theme.status, theme.header("cache-control")), (200, Some("no-cache")));
    assert_eq!(ask(&console, "/console/favicon.svg").await.header("content-type"), Some("image/svg+xml"),);
}

#[tokio::test]
async fn a_file_is_sent_in_the_form_that_the_caller_likes_best() {
    let console = fixture();
    for (accept, encoding, body) in [
        ("gzip, deflate, br", Some("br"), "app packed with brotli"),
        ("gzip", Some("gzip"), "app packed with gzip"),
        ("br;q=0.1, gzip;q=0.2", Some("gzip"), "app packed with gzip"),
        ("zstd", None, "document.title = \"app\";\n"),
    ] {
        let got = ask_with(&console, Method::GET, APP, &[(ACCEPT_ENCODING, accept)]).await;
        assert_eq!((got.header("content-encoding"), got.body.as_str()), (encoding, body), "{accept}");
        assert_eq!(got.header("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!(got.header("vary"), Some("accept-encoding"));
    }
    let theme = ask_with(&console, Method::GET, "/console/theme.js", &[(ACCEPT_ENCODING, "br, gzip")]).await;
    assert_eq!((theme.header("content-encoding"), theme.status), (None, 200));
}

#[tokio::test]
async fn a_caller_that_has_the_file_gets_304_and_no_body() {
    let console = fixture();
    let plain = ask(&console, APP).await;
    let packed = ask_with(&console, Method::GET, APP, &[(ACCEPT_ENCODING, "br")]).await;
    let tag = plain.headers[ETAG].clone();
    assert_ne!(tag, packed.headers[ETAG], "two forms of a file are not the same bytes");
    let tag = tag.to_str().unwrap().to_owned();
    for (known, status) in [
        (tag.clone(), 304),
        (format!("W/{tag}"), 304),
        (format!("\"other\", {tag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
        (tag.replace('"', ""), 200),
    ] {
        let headers = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::try_from(&known).unwrap())]);
        let answer = console.respond(&Method::GET, &APP.parse().unwrap(), &headers).unwrap();
        assert_eq!(answer.status(), status, "{known}");
        assert_eq!(answer.headers()[ETAG], plain.headers[ETAG]);
        assert_eq!(answer.headers()["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(answer.headers().contains_key(CONTENT_LENGTH), status == 200);
    }
}

#[tokio::test]
async fn a_file_of_another_build_is_missing_and_not_the_document() {
    let console = fixture();
    for path in ["assets/app-00000000.js", "assets/", "assets/gone-00000000.js", "assets/../theme.js"] {
        let got = ask(&console, &format!("/console/{path}")).await;
        assert_eq!(got.status, 404, "{path}");
        assert!(got.body.contains("\"code\":\"not_found\""), "{}", got.body);
    }
}

#[tokio::test]
async fn without_a_built_console_the_page_says_how_to_build_it() {
    let console = not_built();
    for path in ["/console/", "/console/logs"] {
        let got = ask(&console, path).await;
        assert_eq!(got.status, 200);
        assert!(got.body.contains("make run") && got.body.contains("npm run bundle"), "{}", got.body);
        let policy = got.header("content-security-policy").unwrap();
        assert!(got.body.contains(&format!("<style nonce=\"{}\">", nonce_of(policy))), "{}", got.body);
    }
    assert_eq!(ask(&console, APP).await.status, 404);
}
