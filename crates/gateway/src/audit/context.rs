//! What a management request says about its audit entry, before its handler runs.

use std::net::IpAddr;

use gateway_core::audit::routes::{self, Route};
use gateway_core::audit::{Actor, ActorType, Chain, Draft, Outcome, Target, Via};
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, Method};

use super::actor_of;
use crate::auth::Identity;
use crate::services::Services;

/// Sent by the console, so that entries show what was done there.
const CLIENT: HeaderName = HeaderName::from_static("x-gateway-client");

/// The route of a request and the parameters of its path.
pub struct MatchedRoute {
    pub path: &'static str,
    pub parameters: Vec<(String, String)>,
}

#[derive(Clone)]
pub struct AuditContext {
    /// `None` if the route changes nothing.
    route: Option<&'static Route>,
    path: &'static str,
    target_id: Option<String>,
    chain: Chain,
    actor: Actor,
    request_id: String,
    ip: String,
    user_agent: Option<String>,
}

impl AuditContext {
    pub fn new(
        method: &Method,
        matched: &MatchedRoute,
        headers: &HeaderMap,
        identity: Option<&Identity>,
    ) -> Self {
        let route = routes::find(method.as_str(), matched.path);
        let parameters = matched.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let text = |name: &HeaderName| {
            headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let is_console = text(&CLIENT).is_some_and(|client| client == "console");
        let via = if is_console { Via::Console } else { Via::Api };
        let nobody = Actor { kind: ActorType::User, id: None, name: None, via };
        Self {
            route,
            path: matched.path,
            target_id: route.and_then(|route| route.target_id(parameters)),
            chain: identity.map_or(Chain::System, |identity| Chain::Org(identity.org.id)),
            actor: identity.map_or(nobody, |identity| actor_of(identity, via)),
            request_id: String::new(),
            ip: String::new(),
            user_agent: text(&USER_AGENT),
        }
    }

    #[must_use]
    pub fn from(mut self, request_id: &str, address: IpAddr) -> Self {
        (self.request_id, self.ip) = (request_id.to_owned(), address.to_string());
        self
    }

    /// The entry of the change that the request makes.
    pub fn entry(&self, services: &Services) -> Draft {
        let (action, kind, status) = match self.route {
            Some(route) => (route.action, route.target, Some(route.status)),
            None => (routes::READ, "route", None),
        };
        let id = if self.route.is_some() { self.target_id.clone() } else { Some(self.path.to_owned()) };
        Draft {
            chain: self.chain,
            id: services.ids.new_id(),
            at: services.clock.now(),
            node: services.ids.node(),
            actor: self.actor.clone(),
            action: action.to_owned(),
            target: Target { kind: kind.to_owned(), id, name: None },
            outcome: Outcome::Success,
            status,
            changes: Vec::new(),
            reason: None,
            request_id: Some(self.request_id.clone()),
            ip: Some(self.ip.clone()),
            user_agent: self.user_agent.clone(),
        }
    }

    /// The entry of a request that was refused for a lack of rights.
    pub fn denied(&self, services: &Services, reason: Option<&str>) -> Draft {
        let mut entry = self.entry(services);
        (entry.outcome, entry.status) = (Outcome::Denied, Some(403));
        entry.reason = reason.map(str::to_owned);
        entry
    }
}
