//! Servers with the transport before Streamable HTTP: a stream of events is opened first, names the address for messages,
//! and has all answers. The connection is the session, so each request has a connection and a session of its own.

use std::time::Duration;

use bytes::Bytes;
use gateway_core::mcp::{ClientFacts, Incoming, LATEST_LEGACY, Members, RequestId, parse};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Uri};
use serde_json::json;

use super::session::client_info;
use super::upstream::{
    Exchange, Failure, FailureKind, Peer, ProtocolHeaders, notification_text, request_text,
};

/// The longest address that a server may name.
const MAX_ENDPOINT: usize = 4 << 10;

impl Peer<'_> {
    /// Sends a message on a connection of its own. Only requests are sent: a notification would begin a session that
    /// nothing follows in.
    pub(super) async fn post_by_sse(&self, message: String, timeout: Duration) -> Result<Exchange, Failure> {
        let Ok(Incoming::Request { method, .. }) = parse(message.as_bytes()) else {
            return Ok(Exchange::empty(self));
        };
        let timed_out =
            |_| Failure::new(FailureKind::Timeout, format!("{method}: the server did not answer in time"));
        let opened = async {
            let mut exchange = self.get(&ProtocolHeaders::default(), timeout).await?;
            let endpoint = self.endpoint_of(&mut exchange).await?;
            if method != "initialize" {
                self.begin_session(&mut exchange, &endpoint, timeout).await?;
            }
            self.send_to(&endpoint, message, timeout).await?;
            exchange.endpoint = Some(endpoint);
            Ok::<_, Failure>(exchange)
        };
        tokio::time::timeout(timeout, opened).await.map_err(timed_out)?
    }

    /// Posts a message to the address of a connection. Its answer comes with the stream.
    pub(super) async fn send_to(
        &self,
        endpoint: &Uri,
        message: String,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let protocol = ProtocolHeaders { endpoint: Some(endpoint.clone()), ..ProtocolHeaders::default() };
        let response = self.send(Method::POST, headers, (Bytes::from(message), &protocol), timeout).await?;
        Exchange::new(response, false, self).await.map(|_| ())
    }

    /// The address that the first event names. It must be one of the server's own origin, which the credentials are for.
    async fn endpoint_of(&self, exchange: &mut Exchange) -> Result<Uri, Failure> {
        let invalid =
            |why: &str| Failure::new(FailureKind::Invalid, format!("the stream of the server {why}"));
        if !exchange.is_stream() {
            return Err(invalid("is not one of events"));
        }
        let first = exchange.next_text().await?.ok_or_else(|| invalid("ended without an endpoint"))?;
        let text = String::from_utf8(first).ok().filter(|text| text.len() <= MAX_ENDPOINT);
        let base = url::Url::parse(&self.server.definition.url).map_err(|_| invalid("has no address"))?;
        let joined = text.and_then(|text| base.join(text.trim()).ok());
        let joined = joined.ok_or_else(|| invalid("does not begin with an endpoint"))?;
        if joined.origin() != base.origin() {
            return Err(invalid("names an endpoint of another origin"));
        }
        joined.as_str().parse().map_err(|_| invalid("names an endpoint that is no address"))
    }

    async fn begin_session(
        &self,
        exchange: &mut Exchange,
        endpoint: &Uri,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let invalid = |why: &str| Failure::new(FailureKind::Invalid, format!("initialize: {why}"));
        let nobody = ClientFacts { info: json!({}), capabilities: json!({}) };
        let mut params = Members::default();
        params.set("protocolVersion", &LATEST_LEGACY);
        params.set("capabilities", &nobody.capabilities);
        params.set("clientInfo", &client_info(&nobody));
        let id = RequestId::from_text("initialize").ok_or_else(|| invalid("no id"))?;
        self.send_to(endpoint, request_text(&id, "initialize", &params), timeout).await?;
        loop {
            match exchange.next().await? {
                Some(Incoming::Response { outcome: Ok(_), .. }) => break,
                Some(Incoming::Response { outcome: Err(error), .. }) => return Err(invalid(&error.message)),
                Some(_) => {}
                None => return Err(invalid("the server did not answer")),
            }
        }
        let message = notification_text("notifications/initialized", &Members::default());
        self.send_to(endpoint, message, timeout).await
    }
}
