//! The management API: one file per area, the table of routes, and the types that all handlers share.

mod accounts;
mod apps;
mod auth;
mod budgets;
mod cache;
pub mod caller;
mod datasets;
mod destinations;
mod eval_results;
mod evals;
mod exports;
pub mod extract;
mod invites;
mod keys;
mod logs;
mod members;
mod metrics;
pub mod openapi;
mod orgs;
mod otel;
pub mod page;
mod playground;
mod prompts;
mod providers;
mod response;
mod sessions;
mod skills;
mod system;
mod teams;
mod usage;
mod users;
mod webhooks;

use std::sync::Arc;

use axum::Router;

use crate::app::App;
use crate::problem::ErrorFormat;
use openapi::Area;

/// Every area, in the order of the documentation.
pub fn areas() -> Vec<Area> {
    vec![
        accounts::area(),
        auth::area(),
        keys::area(),
        orgs::area(),
        members::area(),
        invites::area(),
        teams::area(),
        apps::area(),
        budgets::area(),
        providers::area(),
        prompts::area(),
        datasets::area(),
        evals::area(),
        playground::area(),
        logs::area(),
        sessions::area(),
        users::area(),
        usage::area(),
        metrics::area(),
        cache::area(),
        skills::area(),
        eval_results::area(),
        otel::area(),
        exports::area(),
        webhooks::area(),
        system::area(),
    ]
}

/// The mounted routes, and a matcher for their paths.
pub struct Api {
    pub router: Router,
    paths: matchit::Router<()>,
}

impl Api {
    pub fn new(app: Arc<App>) -> Self {
        let mut router = Router::new();
        let mut paths = matchit::Router::new();
        for route in areas().into_iter().flat_map(|area| area.routes) {
            for path in mount_paths(route.root, route.path) {
                router = router.route(&path, route.handler.clone());
                // Fails for a second method of the same path, which is fine.
                let _ = paths.insert(path, ());
            }
        }
        Self { router: router.with_state(app), paths }
    }

    /// Whether the API has a route for this path, with any method.
    pub fn has_route(&self, path: &str) -> bool {
        self.paths.at(path).is_ok()
    }
}

/// The canonical path of a route and its alias.
pub fn mount_paths(root: bool, path: &str) -> Vec<String> {
    if root { vec![path.to_owned()] } else { vec![format!("/api/v1{path}"), format!("/api{path}")] }
}

/// Whether a path is below `/api`.
pub fn is_api_path(path: &str) -> bool {
    path.strip_prefix("/api").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The first segment after `/api` or `/api/v1`.
pub fn area_of(path: &str) -> &str {
    let rest = path.strip_prefix("/api/v1/").or_else(|| path.strip_prefix("/api/")).unwrap_or("");
    rest.split('/').next().unwrap_or("")
}

/// The format of error bodies under a path.
pub fn error_format_of(path: &str) -> ErrorFormat {
    match area_of(path) {
        "skills" | "eval-results" | "exports" => ErrorFormat::ErrorCode,
        _ => ErrorFormat::Code,
    }
}

/// Whether a path requires no authentication.
pub fn is_public(path: &str, public_docs: bool) -> bool {
    match path {
        "/healthz" => true,
        "/openapi.yaml" | "/llms.txt" => public_docs,
        _ => {
            let rest = path.strip_prefix("/api/v1").or_else(|| path.strip_prefix("/api"));
            matches!(rest, Some("/signup" | "/login" | "/setup" | "/auth/reset"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_documented_paths_are_public() {
        for path in ["/healthz", "/api/signup", "/api/v1/login", "/api/v1/setup", "/api/v1/auth/reset"] {
            assert!(is_public(path, false), "{path}");
        }
        for path in [
            "/",
            "/api/v1/keys",
            "/openapi.yaml",
            "/api/v1/signup/",
            "/api/v1/signup/x",
            "/signup",
            "/metrics",
        ] {
            assert!(!is_public(path, false), "{path}");
        }
        assert!(is_public("/openapi.yaml", true));
    }

    #[test]
    fn the_error_format_follows_the_area() {
        assert_eq!(error_format_of("/api/v1/skills/x"), ErrorFormat::ErrorCode);
        assert_eq!(error_format_of("/api/exports"), ErrorFormat::ErrorCode);
        assert_eq!(error_format_of("/api/v1/keys"), ErrorFormat::Code);
        assert_eq!(error_format_of("/skills"), ErrorFormat::Code);
    }
}
