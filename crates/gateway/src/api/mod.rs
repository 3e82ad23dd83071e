//! The management API: one file per area, the table of routes, and the types that all handlers share.

mod accounts;
mod alerts;
mod apps;
mod attempt_limits;
mod audit;
mod audited;
mod auth;
mod budgets;
mod cache;
pub mod caller;
mod datasets;
mod destinations;
mod downloads;
mod eval_results;
mod evals;
mod exports;
pub mod extract;
mod import;
mod invites;
mod keys;
mod large_deletions;
mod limits;
mod logs;
mod mcp;
mod mcp_connections;
mod mcp_servers;
mod me;
mod members;
mod metrics;
mod models;
pub mod openapi;
mod orgs;
mod otel;
pub mod page;
mod playground;
mod prompts;
mod providers;
mod query;
mod ready_events;
mod replays;
mod response;
mod row_selection;
mod sessions;
mod skills;
mod system;
mod teams;
mod usage;
mod users;
mod views;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use percent_encoding::percent_decode_str;

use crate::app::App;
use crate::audit::context::MatchedRoute;
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
        limits::area(),
        alerts::area(),
        providers::area(),
        models::area(),
        mcp_servers::area(),
        mcp_connections::area(),
        mcp::area(),
        import::area(),
        prompts::area(),
        datasets::area(),
        evals::area(),
        replays::area(),
        playground::area(),
        logs::area(),
        sessions::area(),
        views::area(),
        users::area(),
        me::area(),
        usage::area(),
        metrics::area(),
        cache::area(),
        skills::area(),
        skills::install_area(),
        eval_results::area(),
        otel::area(),
        exports::area(),
        webhooks::area(),
        audit::area(),
        system::area(),
    ]
}

/// The mounted routes, and a matcher for their paths.
pub struct Api {
    pub router: Router,
    /// By path: the path of the route below `/api/v1`.
    paths: matchit::Router<&'static str>,
}

impl Api {
    pub fn new(app: Arc<App>) -> Self {
        let mut router = Router::new();
        let mut paths = matchit::Router::new();
        for route in areas().into_iter().flat_map(|area| area.routes) {
            for path in mount_paths(route.root, route.path) {
                router = router.route(&path, route.handler.clone());
                // Fails for a second method of the same path, which is fine.
                let _ = paths.insert(path, route.path);
            }
        }
        Self { router: router.with_state(app), paths }
    }

    /// The route for this path, with any method.
    pub fn find_route(&self, path: &str) -> Option<MatchedRoute> {
        let matched = self.paths.at(path).ok()?;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let parameters = matched.params.iter().map(|(name, value)| (name.to_owned(), decoded(value)));
        Some(MatchedRoute { path: matched.value, parameters: parameters.collect() })
    }

    /// Whether the API has a route for this path, with any method.
    pub fn has_route(&self, path: &str) -> bool {
        self.paths.at(path).is_ok()
    }
}

/// The canonical path of a route and its alias. A parameter named `path` takes the rest of the path.
pub fn mount_paths(root: bool, path: &str) -> Vec<String> {
    let path = path.replace("{path}", "{*path}");
    if root { vec![path] } else { vec![format!("/api/v1{path}"), format!("/api{path}")] }
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

/// Below it are the links from which agents install skills.
const INSTALL_ROOT: &str = "/s/";

/// Whether requests end when their client disconnects. They commit nothing after which steps must follow.
pub fn ends_with_client(path: &str) -> bool {
    path.strip_prefix("/mcp").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path requires no authentication.
pub fn is_public(path: &str, public_docs: bool) -> bool {
    match path {
        "/healthz" | "/.well-known/jwks.json" => true,
        "/openapi.yaml" | "/llms.txt" => public_docs,
        // The token of an install link is in the path.
        _ if path.starts_with(INSTALL_ROOT) => true,
        _ => {
            let rest = path.strip_prefix("/api/v1").or_else(|| path.strip_prefix("/api"));
            matches!(rest, Some("/signup" | "/login" | "/setup" | "/auth/reset"))
        }
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::audit::routes;

    use super::*;
    use openapi::{Operation, Schemas};

    #[test]
    fn only_the_documented_paths_are_public() {
        for path in [
            "/healthz",
            "/.well-known/jwks.json",
            "/api/signup",
            "/api/v1/login",
            "/api/v1/setup",
            "/api/v1/auth/reset",
            "/s/x/y",
        ] {
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
            "/s",
            "/sx/y",
            "/api/v1/s/x",
        ] {
            assert!(!is_public(path, false), "{path}");
        }
        assert!(is_public("/openapi.yaml", true));
    }

    /// A new route needs one line in `gateway_core::audit::routes`, and `Audited` as the first argument of its handler.
    #[test]
    fn every_route_that_changes_something_has_an_audit_action() {
        let mut known: Vec<&str> = Vec::new();
        for route in areas().into_iter().flat_map(|area| area.routes).filter(|route| !route.root) {
            let name = format!("{} {}", route.method, route.path);
            let recorded = routes::find(route.method, route.path);
            let exempt = routes::UNRECORDED.iter().find(|(unrecorded, _)| *unrecorded == name);
            let mut schemas = Schemas::default();
            let operation = Operation::of(&route, &mut schemas);
            assert_eq!(
                operation.audited,
                recorded.is_some(),
                "{name}: the handler's first argument must be Audited"
            );
            if route.method != "get" {
                assert!(recorded.is_some() != exempt.is_some(), "{name} has no line in audit::routes");
            }
            if let Some(recorded) = recorded {
                assert_eq!(operation.responses[0].0, recorded.status, "{name}");
                known.push(recorded.route);
            }
            known.extend(exempt.map(|(route, _)| *route));
        }
        for line in routes::ROUTES
            .iter()
            .map(|route| route.route)
            .chain(routes::UNRECORDED.iter().map(|(route, _)| *route))
        {
            assert!(known.contains(&line), "{line} is not a route");
        }
    }

    #[test]
    fn the_error_format_follows_the_area() {
        assert_eq!(error_format_of("/api/v1/skills/x"), ErrorFormat::ErrorCode);
        assert_eq!(error_format_of("/api/exports"), ErrorFormat::ErrorCode);
        assert_eq!(error_format_of("/api/v1/keys"), ErrorFormat::Code);
        assert_eq!(error_format_of("/skills"), ErrorFormat::Code);
    }
}
