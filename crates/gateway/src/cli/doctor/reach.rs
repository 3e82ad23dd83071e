//! Checks of what is outside of the process: ports, and providers with their credentials.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use gateway_core::egress::EgressRule;
use http::Request;

use super::Finding;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::outbound::body::OutboundBody;
use crate::outbound::clients::Clients;
use crate::targets::probe::probe_request;
use crate::targets::{Target, operator_providers};

const TIMEOUT: Duration = Duration::from_secs(15);
/// Variables that other programs take as their proxy. The gateway connects directly.
const PROXY_VARIABLES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];

/// The address is free, or a gateway has it already.
pub async fn port(setting: &str, address: SocketAddr) -> Finding {
    const CHECK: &str = "port";
    let Err(error) = TcpListener::bind(address) else {
        return Finding::ok(CHECK, format!("{address} is free ({setting})"));
    };
    if error.kind() == std::io::ErrorKind::AddrInUse && is_gateway(address).await {
        return Finding::ok(CHECK, format!("a gateway is running at {address} ({setting})"));
    }
    let variable = config::env_name(setting);
    Finding::failed(
        CHECK,
        format!("{address}: {error}"),
        format!("end the other process, or set {variable} to a free address"),
    )
}

async fn is_gateway(address: SocketAddr) -> bool {
    let mut request = Request::new(OutboundBody::default());
    let Ok(uri) = format!("http://{address}/healthz").parse() else { return false };
    *request.uri_mut() = uri;
    let sent =
        tokio::time::timeout(TIMEOUT, async { Clients::new().send(request, EgressRule::Any).await }).await;
    matches!(sent, Ok(Ok(response)) if response.headers().contains_key("x-request-id"))
}

/// Calls each provider of the operator with its credential.
pub async fn providers(config: &Config, offline: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(name) = PROXY_VARIABLES.iter().find(|name| config::variable(name).is_some()) {
        let remedy = "let the gateway reach the providers directly, or set GATEWAY_PROVIDER_<NAME>_BASE_URL";
        findings.push(Finding::warning(
            "egress",
            format!("{name} is set, but the gateway uses no proxy"),
            remedy,
        ));
    }
    let targets = operator_providers(&config.providers);
    let mut ready: Vec<&Target> = targets
        .values()
        .map(|target| &**target)
        .filter(|target| target.is_ready() && !target.is_sandbox())
        .collect();
    ready.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if ready.is_empty() {
        let message = "the operator has configured none; organizations can store credentials, and the sandbox needs none";
        findings.push(Finding::ok("providers", message));
    }
    let clients = Clients::new();
    for target in ready {
        findings.push(if offline {
            Finding::ok("providers", format!("{}: configured, not called", target.name))
        } else {
            provider(&clients, target).await
        });
    }
    findings
}

async fn provider(clients: &Clients, target: &Target) -> Finding {
    const CHECK: &str = "providers";
    let name = &target.name;
    let variable = format!("GATEWAY_PROVIDER_{}", name.to_uppercase().replace('-', "_"));
    let unreachable = |why: String| {
        let remedy = format!("check the network, the firewall and {variable}_BASE_URL");
        Finding::failed(CHECK, format!("{name}: {why}"), remedy)
    };
    let request = match probe_request(target, target.credentials.first(), Clock::default().now()) {
        Ok(request) => request,
        Err(error) => return unreachable(error.message),
    };
    let response = match tokio::time::timeout(TIMEOUT, clients.send(request, EgressRule::Any)).await {
        Err(_) => return unreachable(format!("no answer within {TIMEOUT:?}")),
        Ok(Err(error)) => {
            let why =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            return unreachable(why);
        }
        Ok(Ok(response)) => response,
    };
    let status = response.status().as_u16();
    match status {
        401 | 403 => {
            let message = format!("{name}: the credential is refused ({status})");
            Finding::failed(CHECK, message, format!("replace {variable}_API_KEY"))
        }
        429 | 500.. => {
            let message = format!("{name}: it answers {status}");
            Finding::warning(CHECK, message, "try again later; see the provider's status page")
        }
        _ => Finding::ok(CHECK, format!("{name}: reachable, and the credential is accepted ({status})")),
    }
}
