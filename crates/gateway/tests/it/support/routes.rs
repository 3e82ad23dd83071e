//! The route table: role and visibility of each route, and paths with parameters filled in.

use gateway::api::openapi::{Operation, Route, Schemas};
use gateway_core::access::Role;
use http::Method;

/// Static properties of a route.
pub struct RouteInfo {
    pub method: Method,
    /// Path template, below `/api/v1` unless it is a root route.
    pub path: String,
    pub root: bool,
    pub role: Option<Role>,
    pub public: bool,
}

/// Returns every mounted route.
pub fn routes() -> Vec<RouteInfo> {
    let mut schemas = Schemas::default();
    let areas = gateway::api::areas();
    areas.iter().flat_map(|area| &area.routes).map(|route| known(route, &mut schemas)).collect()
}

fn known(route: &Route, schemas: &mut Schemas) -> RouteInfo {
    let operation = Operation::of(route, schemas);
    let path = if route.root { route.path.to_owned() } else { format!("/api/v1{}", route.path) };
    RouteInfo {
        method: Method::from_bytes(route.method.to_uppercase().as_bytes()).unwrap(),
        root: route.root,
        role: operation.role,
        public: gateway::api::is_public(&path, false),
        path,
    }
}

/// Returns the parameter names of a path template.
pub fn params(path: &str) -> Vec<&str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

/// Replaces each parameter of a path template.
pub fn fill_params(path: &str, value: impl Fn(&str) -> String) -> String {
    let part = |part: &str| match part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
        Some(name) => value(name),
        None => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}
