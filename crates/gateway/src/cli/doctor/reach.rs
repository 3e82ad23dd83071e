//! Checks of what is outside of the process: ports, and providers with their credentials.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use gateway_core::egress::EgressRule;
use gateway_core::time::Timestamp;
use http::header::DATE;
use http::{HeaderMap, Request};

use super::Finding;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::outbound::body::OutboundBody;
use crate::outbound::clients::Clients;
use crate::targets::probe::probe_request;
use crate::targets::{Target, operator_providers};

const TIMEOUT: Duration = Duration::from_secs(15);
/// Providers refuse signatures that are older than five minutes, or younger.
const LARGEST_SKEW: Duration = Duration::from_secs(60);

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
        if offline {
            findings.push(Finding::ok("providers", format!("{}: configured, not called", target.name)));
            continue;
        }
        let (finding, skew) = provider(&clients, target).await;
        findings.push(finding);
        findings.extend(skew);
    }
    findings
}

/// The provider's answer, and what its clock says about this one.
async fn provider(clients: &Clients, target: &Target) -> (Finding, Option<Finding>) {
    const CHECK: &str = "providers";
    let name = &target.name;
    let variable = format!("GATEWAY_PROVIDER_{}", name.to_uppercase().replace('-', "_"));
    let unreachable = |why: String| {
        let remedy = format!("check the network, the firewall and {variable}_BASE_URL");
        (Finding::failed(CHECK, format!("{name}: {why}"), remedy), None)
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
    let skew = skew(name, response.headers(), Clock::default().now());
    let status = response.status().as_u16();
    let finding = match status {
        401 | 403 => {
            let message = format!("{name}: the credential is refused ({status})");
            Finding::failed(CHECK, message, format!("replace {variable}_API_KEY"))
        }
        429 | 500.. => {
            let message = format!("{name}: it answers {status}");
            Finding::warning(CHECK, message, "try again later; see the provider's status page")
        }
        _ => Finding::ok(CHECK, format!("{name}: reachable, and the credential is accepted ({status})")),
    };
    (finding, skew)
}

/// A clock that is wrong makes tokens and signatures invalid.
pub fn skew(provider: &str, headers: &HeaderMap, now: Timestamp) -> Option<Finding> {
    let theirs = Timestamp::from_http_date(headers.get(DATE)?.to_str().ok()?)?;
    let apart = now.since(theirs).max(theirs.since(now));
    (apart > LARGEST_SKEW).then(|| {
        let message = format!("the time is {now}, and {provider} says {theirs}");
        Finding::warning("clock", message, "set the time; run an NTP client")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_from_the_providers_is_reported() {
        let said = |date: &str, seconds: i64| {
            let headers = HeaderMap::from_iter([(DATE, date.parse().unwrap())]);
            let at = Timestamp::from_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
            skew("openai", &headers, at.plus(seconds * 1_000)).map(|finding| finding.message)
        };
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!((said(date, 0), said(date, 60), said(date, -60)), (None, None, None));
        assert!(said(date, 61).unwrap().contains("openai says 1994-11-06T08:49:37"));
        assert!(said(date, -3_600).is_some());
        assert_eq!(said("yesterday", 0), None);
        assert_eq!(skew("openai", &HeaderMap::new(), Timestamp(0)).map(|finding| finding.message), None);
    }
}
