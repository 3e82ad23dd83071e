//! HTTP clients for providers. Tenant-chosen addresses use separate clients, because only those pass the egress guard.
//! Plain HTTP/1.1 uses the connection pool in `pool`; TLS, where a provider may negotiate HTTP/2, uses the client of
//! hyper-util.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use gateway_core::egress::EgressRule;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::body::OutboundBody;
use super::pool::{Pool, UpstreamBody};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Unused connections are closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of idle connections per host.
const MAX_IDLE_CONNECTIONS: usize = 1024;
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

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
    tls: OnceLock<Client<HttpsConnector<Http>, OutboundBody>>,
}

pub(crate) type Http = HttpConnector<Resolver>;

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("cannot connect")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
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
        Ok(pair.tls()?.request(request).await?.map(UpstreamBody::from))
    }

    /// Closes the idle connections past their timeout.
    pub fn close_expired(&self) {
        for pair in [&self.any, &self.private, &self.public] {
            pair.plain.close_expired();
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
        let plain = Pool::new(http_connector(rule), IDLE_TIMEOUT, MAX_IDLE_CONNECTIONS);
        Self { rule, plain, tls: OnceLock::new() }
    }

    fn tls(&self) -> Result<&Client<HttpsConnector<Http>, OutboundBody>, SendError> {
        if let Some(client) = self.tls.get() {
            return Ok(client);
        }
        let client = tls_client(https_connector(self.rule)?);
        Ok(self.tls.get_or_init(|| client))
    }
}

fn tls_client<C>(connector: C) -> Client<C, OutboundBody>
where
    C: hyper_util::client::legacy::connect::Connect + Clone,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .build(connector)
}

fn http_connector(rule: EgressRule) -> Http {
    let mut http = HttpConnector::new_with_resolver(Resolver { rule });
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(TCP_KEEPALIVE));
    http
}

fn https_connector(rule: EgressRule) -> Result<HttpsConnector<Http>, SendError> {
    static CONFIG: OnceLock<rustls::ClientConfig> = OnceLock::new();
    let config = if let Some(config) = CONFIG.get() {
        config
    } else {
        let loaded = rustls::ClientConfig::builder()
            .with_native_roots()
            .map_err(SendError::Certificates)?
            .with_no_client_auth();
        CONFIG.get_or_init(|| loaded)
    };
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config.clone())
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http_connector(rule)))
}

/// Applies the rule to IP literals, which the connector does not pass to the resolver.
pub fn ip_literal_is_allowed(uri: &Uri, rule: EgressRule) -> bool {
    let host = uri.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse::<IpAddr>().map_or(true, |address| rule.allows(address))
}

/// The host name resolves only to addresses that the egress rule blocks.
#[derive(Debug, thiserror::Error)]
#[error("the address is private, local or a metadata service")]
pub struct AddressBlocked;

/// The system's resolver, without the addresses that the egress rule blocks.
#[derive(Clone)]
pub(crate) struct Resolver {
    rule: EgressRule,
}

impl tower::Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let rule = self.rule;
        Box::pin(async move {
            let resolved = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = resolved.filter(|address| rule.allows(address.ip())).collect();
            let is_blocked = rule != EgressRule::Any && allowed.is_empty();
            if is_blocked { Err(AddressBlocked.into()) } else { Ok(allowed.into_iter()) }
        })
    }
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

    #[tokio::test]
    async fn a_name_that_resolves_to_a_private_address_is_blocked() {
        let resolve = |rule| async move {
            let name: Name = "localhost".parse().unwrap();
            tower::Service::call(&mut Resolver { rule }, name).await
        };
        assert!(resolve(EgressRule::Public).await.is_err_and(|error| error.is::<AddressBlocked>()));
        for rule in [EgressRule::Private, EgressRule::Any] {
            assert!(resolve(rule).await.is_ok_and(|mut addresses| addresses.next().is_some()));
        }
    }
}
