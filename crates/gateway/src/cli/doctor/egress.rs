//! The way out: what URLs of tenants can reach, and whether the host of a provider can be reached, step by step, because the
//! remedy of each is another one: the name, the connection, the certificate, the time.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gateway_core::egress::EgressRule;
use gateway_core::llm::providers::all;
use http::{Method, Request};
use rustls::CertificateError;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use url::Url;

use super::Finding;
use super::reach::skew;
use crate::clock::Clock;
use crate::config::{self, Config, EgressPrivate};
use crate::outbound::body::OutboundBody;
use crate::outbound::clients::{Clients, SendError};

const CHECK: &str = "egress";
/// For each step.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Variables that other programs take as their proxy. The gateway connects directly.
const PROXY_VARIABLES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const NETWORK: &str =
    "check the network and the firewall; without a way out, use --offline, and providers that can be reached";
const CERTIFICATES: &str =
    "install the package ca-certificates, or name a file of certificates with SSL_CERT_FILE";

/// What URLs of tenants can reach, and whether a proxy is expected that the gateway does not use.
pub fn settings(config: &Config) -> Vec<Finding> {
    let reached = match config.egress_private {
        EgressPrivate::Allow => "URLs of tenants can reach private addresses",
        EgressPrivate::Deny => "URLs of tenants can reach public addresses only",
        EgressPrivate::Auto if config.is_exposed() => {
            "URLs of tenants can reach public addresses only, because others can connect"
        }
        EgressPrivate::Auto => {
            "URLs of tenants can reach private addresses until there is a second organization"
        }
    };
    let mut findings = vec![Finding::ok(CHECK, reached)];
    if let Some(name) = PROXY_VARIABLES.iter().find(|name| config::variable(name).is_some()) {
        let remedy = "let the gateway reach the providers directly, or set GATEWAY_PROVIDER_<NAME>_BASE_URL";
        findings.push(Finding::warning(
            CHECK,
            format!("{name} is set, but the gateway uses no proxy"),
            remedy,
        ));
    }
    findings
}

/// Connects to a provider without a credential: to the first that the operator has one for, or else to the first built-in
/// one.
pub async fn host(config: &Config) -> Vec<Finding> {
    let base = |name: &str| config.providers.get(name).and_then(|settings| settings.base_url.as_deref());
    let has_key = |name: &str| config.providers.get(name).is_some_and(|settings| settings.api_key.is_some());
    let preferred = all().iter().filter(|provider| has_key(provider.name));
    let chosen = preferred.chain(all()).find_map(|provider| {
        let url = Url::parse(base(provider.name).or(provider.base_url)?).ok()?;
        Some((provider.name, url.host_str()?.to_owned(), url))
    });
    let Some((provider, host, url)) = chosen else { return Vec::new() };
    let started = Instant::now();
    if let Err(finding) = connect(&host, url.port_or_known_default().unwrap_or(443)).await {
        return vec![finding];
    }
    let mut request = Request::new(OutboundBody::default());
    *request.method_mut() = Method::HEAD;
    if let Ok(uri) = url.as_str().parse() {
        *request.uri_mut() = uri;
    }
    let response = match timeout(TIMEOUT, Clients::new().send(request, EgressRule::Any)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return vec![refused(&host, &error)],
        Err(_) => return vec![warning(&format!("{host} does not answer within {TIMEOUT:?}"))],
    };
    let how =
        if url.scheme() == "https" { "by TLS, with a certificate that is valid" } else { "without TLS" };
    let took = started.elapsed().as_millis();
    let mut findings = vec![Finding::ok(CHECK, format!("{host} answers {how} ({took} ms)"))];
    findings.extend(skew(provider, response.headers(), Clock::default().now()));
    findings
}

/// Looks up the name and opens a connection.
async fn connect(host: &str, port: u16) -> Result<(), Finding> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = match timeout(TIMEOUT, lookup_host((bare, port))).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => return Err(unresolved(&format!("the name {host} cannot be resolved: {error}"))),
        Err(_) => return Err(unresolved(&format!("the name {host} is not resolved within {TIMEOUT:?}"))),
    };
    match timeout(TIMEOUT, TcpStream::connect(addresses.as_slice())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(warning(&format!("{host}:{port} cannot be reached: {error}"))),
        Err(_) => Err(warning(&format!("{host}:{port} is not connected within {TIMEOUT:?}"))),
    }
}

fn warning(message: &str) -> Finding {
    Finding::warning(CHECK, message, NETWORK)
}

fn unresolved(message: &str) -> Finding {
    Finding::warning(CHECK, message, format!("check the name servers in /etc/resolv.conf; {NETWORK}"))
}

/// Why a host that accepts connections was not asked.
fn refused(host: &str, error: &SendError) -> Finding {
    if let SendError::Certificates(why) = error {
        let message = format!("the certificates of the system cannot be read: {why}");
        return Finding::failed(CHECK, message, CERTIFICATES);
    }
    let Some(rustls::Error::InvalidCertificate(why)) = tls_error(error) else {
        let why = Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        return warning(&format!("{host}: {why}"));
    };
    let now = Clock::default().now();
    let clock = |what: &str| {
        let message = format!("the certificate of {host} {what}, if the time here ({now}) is right");
        Finding::failed("clock", message, "set the time; run an NTP client")
    };
    match why {
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            clock("is not valid yet")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => clock("has expired"),
        why => {
            let remedy = format!("{CERTIFICATES}; a firewall that inspects TLS needs its own there");
            Finding::failed(CHECK, format!("the certificate of {host} is not trusted here: {why}"), remedy)
        }
    }
}

/// The error of TLS among the causes.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // `source` of an I/O error skips the error that it contains.
        let contained = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match contained {
            Some(contained) => Some(contained),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn of_certificate(why: CertificateError) -> Finding {
        let inner = io::Error::other(rustls::Error::InvalidCertificate(why));
        refused("api.example.com", &SendError::Connect(Box::new(inner)))
    }

    #[test]
    fn a_certificate_that_is_out_of_its_time_is_a_question_of_the_clock() {
        for why in [CertificateError::NotValidYet, CertificateError::Expired] {
            let finding = of_certificate(why);
            assert_eq!((finding.check, finding.verdict), ("clock", Verdict::Failed), "{finding}");
            assert!(finding.to_string().contains("NTP"), "{finding}");
        }
    }

    #[test]
    fn missing_certificates_are_named_with_the_package() {
        let unknown = of_certificate(CertificateError::UnknownIssuer);
        let none = refused("api.example.com", &SendError::Certificates(io::ErrorKind::NotFound.into()));
        for finding in [unknown, none] {
            assert_eq!((finding.check, finding.verdict), ("egress", Verdict::Failed), "{finding}");
            assert!(finding.to_string().contains("ca-certificates"), "{finding}");
        }
    }

    #[test]
    fn a_host_that_cannot_be_reached_is_a_warning() {
        let finding = refused("api.example.com", &SendError::Connect("refused".into()));
        assert_eq!(finding.verdict, Verdict::Warning, "{finding}");
        assert!(finding.message.contains("refused"), "{finding}");
    }
}
