//! Connections to providers: those to addresses of a tenant's choosing apart from the others, because only they pass the
//! egress guard. Plain HTTP/1.1 goes through our own `pool`; over TLS, where a provider may speak HTTP/2, hyper-util's
//! client does the same.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use gateway_core::egress::is_public;
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
/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(60);
const MOST_IDLE: usize = 1024;

/// Connections to providers, kept by the worker that uses them.
pub struct Clients {
    open: Side,
    guarded: Side,
}

struct Side {
    guarded: bool,
    plain: Pool,
    /// Made when first needed: reading the system's certificates takes time.
    tls: OnceLock<Client<HttpsConnector<Http>, OutboundBody>>,
}

pub(crate) type Http = HttpConnector<Resolver>;

/// Why there is no answer.
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
        let side = |guarded| Side {
            guarded,
            plain: Pool::new(connector(guarded), IDLE, MOST_IDLE),
            tls: OnceLock::new(),
        };
        Self { open: side(false), guarded: side(true) }
    }

    /// Sends the request, which must name scheme and host, and waits for the head of the answer.
    pub async fn send(
        &self,
        request: Request<OutboundBody>,
        guarded: bool,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let side = if guarded { &self.guarded } else { &self.open };
        if request.uri().scheme() != Some(&Scheme::HTTPS) {
            return side.plain.send(request).await;
        }
        let client = if let Some(client) = side.tls.get() {
            client
        } else {
            let made = client(secure(side.guarded)?);
            side.tls.get_or_init(|| made)
        };
        Ok(client.request(request).await?.map(UpstreamBody::from))
    }

    /// Closes connections that nobody has used for long.
    pub fn sweep(&self) {
        self.open.plain.sweep();
        self.guarded.plain.sweep();
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self::new()
    }
}

fn client<C>(connector: C) -> Client<C, OutboundBody>
where
    C: hyper_util::client::legacy::connect::Connect + Clone,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MOST_IDLE)
        .build(connector)
}

fn connector(guarded: bool) -> Http {
    let mut http = HttpConnector::new_with_resolver(Resolver { guarded });
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(Duration::from_secs(60)));
    http
}

fn secure(guarded: bool) -> Result<HttpsConnector<Http>, SendError> {
    static CONFIG: OnceLock<rustls::ClientConfig> = OnceLock::new();
    let config = if let Some(config) = CONFIG.get() {
        config
    } else {
        let made = rustls::ClientConfig::builder()
            .with_native_roots()
            .map_err(SendError::Certificates)?
            .with_no_client_auth();
        CONFIG.get_or_init(|| made)
    };
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config.clone())
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector(guarded)))
}

/// The connector does not ask the resolver about addresses that are written out, so they are looked at here.
pub fn literal_is_allowed(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse::<IpAddr>().map_or(true, is_public)
}

/// A name that leads only to addresses that tenants may not reach.
#[derive(Debug, thiserror::Error)]
#[error("the address is private or local")]
pub struct Refused;

/// The system's resolver; a guarded one drops what is not public.
#[derive(Clone)]
pub(crate) struct Resolver {
    guarded: bool,
}

impl tower::Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guarded = self.guarded;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.into_iter().filter(|address| !guarded || is_public(address.ip())).collect();
            if guarded && allowed.is_empty() { Err(Refused.into()) } else { Ok(allowed.into_iter()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_out_private_addresses_are_refused() {
        for uri in [
            "http://127.0.0.1/",
            "http://[::1]:8080/x",
            "http://169.254.169.254/",
            "http://[::ffff:10.0.0.1]/",
        ] {
            assert!(!literal_is_allowed(&uri.parse().unwrap()), "{uri}");
        }
        for uri in ["http://8.8.8.8/", "https://api.example.com/"] {
            assert!(literal_is_allowed(&uri.parse().unwrap()), "{uri}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_private_address_is_refused() {
        let resolve = |guarded| async move {
            let name: Name = "localhost".parse().unwrap();
            tower::Service::call(&mut Resolver { guarded }, name).await
        };
        assert!(resolve(true).await.is_err_and(|error| error.is::<Refused>()));
        assert!(resolve(false).await.is_ok_and(|mut found| found.next().is_some()));
    }
}
