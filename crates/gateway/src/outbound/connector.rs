//! Connections to hosts: TCP to addresses that the egress rule allows, and TLS on top of it.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use gateway_core::egress::EgressRule;
use http::Uri;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use rustls::{AlertDescription, ClientConfig};
use tokio::net::TcpStream;
use tower::ServiceExt as _;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

pub(crate) type Http = HttpConnector<Resolver>;
/// A connection, plain or with TLS.
pub(crate) type Io = MaybeHttpsStream<TokioIo<TcpStream>>;
type ConnectError = Box<dyn Error + Send + Sync>;

/// Opens connections for HTTP/1.1.
pub(crate) enum Connector {
    Plain(Http),
    Tls(HttpsConnector<Http>),
}

impl Connector {
    pub(crate) fn plain(rule: EgressRule) -> Self {
        Self::Plain(http_connector(rule))
    }

    /// The error says why the system's certificates cannot be read.
    pub(crate) fn tls(rule: EgressRule) -> io::Result<Self> {
        // One configuration for all, so that every worker resumes the TLS sessions of the others.
        static HTTP1: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        let config = if let Some(config) = HTTP1.get() {
            config
        } else {
            let mut config = config()?.clone();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            HTTP1.get_or_init(|| Arc::new(config))
        };
        Ok(Self::Tls((http_connector(rule), Arc::clone(config)).into()))
    }

    pub(crate) async fn connect(&self, uri: Uri) -> Result<Io, ConnectError> {
        match self {
            Self::Plain(connector) => Ok(MaybeHttpsStream::Http(connector.clone().oneshot(uri).await?)),
            Self::Tls(connector) => connector.clone().oneshot(uri).await,
        }
    }
}

/// For hosts without HTTP/1.1.
pub(crate) fn any_version(rule: EgressRule) -> io::Result<HttpsConnector<Http>> {
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config()?.clone())
        .https_only()
        .enable_all_versions()
        .wrap_connector(http_connector(rule)))
}

/// Whether the host refused to speak HTTP/1.1 over TLS.
pub(crate) fn is_without_http1(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::AlertReceived(alert)) = error.downcast_ref() {
            return *alert == AlertDescription::NoApplicationProtocol;
        }
        // `source` of an I/O error skips the error that it contains.
        let contained = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match contained {
            Some(contained) => Some(contained),
            None => error.source(),
        };
    }
    false
}

fn config() -> io::Result<&'static ClientConfig> {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config);
    }
    let loaded = ClientConfig::builder().with_native_roots()?.with_no_client_auth();
    Ok(CONFIG.get_or_init(|| loaded))
}

fn http_connector(rule: EgressRule) -> Http {
    let mut http = HttpConnector::new_with_resolver(Resolver { rule });
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(TCP_KEEPALIVE));
    http
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
    type Error = ConnectError;
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
