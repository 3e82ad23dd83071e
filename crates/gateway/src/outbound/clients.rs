//! HTTP clients for providers. Tenant-chosen addresses use separate clients, because only those pass the egress guard.
//! HTTP/1.1, plain or over TLS, uses the connection pool in `pool`. HTTP/2 is left to hosts that speak nothing else, with
//! the client of hyper-util: on a connection that many calls share, a caller that reads slowly would hold up the others.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gateway_core::egress::EgressRule;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::body::OutboundBody;
use super::connector::{self, Connector, Http, is_without_http1};
use super::http1::ConnectionError;
use super::pool::{Pool, UpstreamBody};

/// Unused connections are closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of idle connections per host.
const MAX_IDLE_CONNECTIONS: usize = 1024;
/// Hosts without HTTP/1.1 that are remembered.
const MAX_HTTP2_HOSTS: usize = 1024;

/// The provider clients of one worker thread.
pub struct Clients {
    any: ClientPair,
    private: ClientPair,
    public: ClientPair,
}

/// The plain and the TLS client of one egress rule.
struct ClientPair {
    rule: EgressRule,
    plain: Pool,
    /// Created on first use, because loading the system's root certificates is slow.
    tls: OnceLock<TlsClient>,
}

struct TlsClient {
    pool: Pool,
    http2: Client<HttpsConnector<Http>, OutboundBody>,
    /// By authority.
    http2_hosts: Mutex<HashSet<String>>,
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("cannot connect")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the connection broke")]
    Broken(#[from] ConnectionError),
    #[error("the call failed")]
    Client(#[from] ClientError),
    #[error("the system's certificates cannot be read: {0}")]
    Certificates(std::io::Error),
}

impl SendError {
    pub fn is_connect(&self) -> bool {
        match self {
            Self::Connect(_) => true,
            Self::Client(error) => error.is_connect(),
            Self::Broken(_) | Self::Certificates(_) => false,
        }
    }
}

impl Clients {
    pub fn new() -> Self {
        let [any, private, public] =
            [EgressRule::Any, EgressRule::Private, EgressRule::Public].map(ClientPair::new);
        Self { any, private, public }
    }

    /// Sends the request and waits for the response head. The request URI must be absolute.
    pub async fn send(
        &self,
        request: Request<OutboundBody>,
        rule: EgressRule,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let pair = match rule {
            EgressRule::Any => &self.any,
            EgressRule::Private => &self.private,
            EgressRule::Public => &self.public,
        };
        if request.uri().scheme() != Some(&Scheme::HTTPS) {
            return pair.plain.send(request).await;
        }
        pair.tls()?.send(request).await
    }

    /// Closes the idle connections past their timeout.
    pub fn close_expired(&self) {
        for pair in [&self.any, &self.private, &self.public] {
            pair.plain.close_expired();
            if let Some(tls) = pair.tls.get() {
                tls.pool.close_expired();
            }
        }
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientPair {
    fn new(rule: EgressRule) -> Self {
        let plain = Pool::new(Connector::plain(rule), IDLE_TIMEOUT, MAX_IDLE_CONNECTIONS);
        Self { rule, plain, tls: OnceLock::new() }
    }

    fn tls(&self) -> Result<&TlsClient, SendError> {
        if let Some(client) = self.tls.get() {
            return Ok(client);
        }
        let client = TlsClient::new(self.rule).map_err(SendError::Certificates)?;
        Ok(self.tls.get_or_init(|| client))
    }
}

impl TlsClient {
    fn new(rule: EgressRule) -> std::io::Result<Self> {
        let http2 = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .build(connector::any_version(rule)?);
        let pool = Pool::new(Connector::tls(rule)?, IDLE_TIMEOUT, MAX_IDLE_CONNECTIONS);
        Ok(Self { pool, http2, http2_hosts: Mutex::default() })
    }

    async fn send(&self, request: Request<OutboundBody>) -> Result<Response<UpstreamBody>, SendError> {
        let authority = request.uri().authority().map_or("", |authority| authority.as_str());
        if self.speaks_only_http2(authority) {
            return self.send_by_http2(request).await;
        }
        let connection = match self.pool.connection(request.uri()).await {
            Ok(connection) => connection,
            Err(SendError::Connect(error)) if is_without_http1(&*error) => {
                self.remember_http2(authority);
                return self.send_by_http2(request).await;
            }
            Err(error) => return Err(error),
        };
        self.pool.send_on(connection, request).await
    }

    async fn send_by_http2(
        &self,
        request: Request<OutboundBody>,
    ) -> Result<Response<UpstreamBody>, SendError> {
        Ok(self.http2.request(request).await?.map(UpstreamBody::from))
    }

    fn speaks_only_http2(&self, authority: &str) -> bool {
        self.http2_hosts.lock().unwrap_or_else(PoisonError::into_inner).contains(authority)
    }

    fn remember_http2(&self, authority: &str) {
        let mut hosts = self.http2_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_HTTP2_HOSTS {
            hosts.clear();
        }
        hosts.insert(authority.to_owned());
    }
}

/// Applies the rule to IP literals, which the connector does not pass to the resolver.
pub fn ip_literal_is_allowed(uri: &Uri, rule: EgressRule) -> bool {
    let host = uri.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse::<IpAddr>().map_or(true, |address| rule.allows(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_ip_literals_are_blocked() {
        for uri in [
            "http://127.0.0.1/",
            "http://[::1]:8080/x",
            "http://169.254.169.254/",
            "http://[::ffff:10.0.0.1]/",
        ] {
            assert!(!ip_literal_is_allowed(&uri.parse().unwrap(), EgressRule::Public), "{uri}");
        }
        for uri in ["http://8.8.8.8/", "https://api.example.com/"] {
            assert!(ip_literal_is_allowed(&uri.parse().unwrap(), EgressRule::Public), "{uri}");
        }
    }

    #[test]
    fn of_private_ip_literals_only_metadata_services_are_blocked_where_private_ones_are_allowed() {
        let is_allowed = |uri: &str| ip_literal_is_allowed(&uri.parse().unwrap(), EgressRule::Private);
        assert!(is_allowed("http://127.0.0.1/") && is_allowed("http://[::1]:8080/x"));
        assert!(!is_allowed("http://169.254.169.254/") && !is_allowed("http://[fd00:ec2::254]/"));
    }
}
