//! Connections of HTTP/1.1, kept open for the next request. A connection has no task of its own: the call that has it
//! drives it, so that an answer changes tasks nowhere on its way, and leaves with the first piece of its body. A call that
//! is dropped takes its connection with it, which ends it at the provider too.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt as _;

use super::body::OutboundBody;
use super::clients::{Http, SendError};

pub struct Pool {
    connector: Http,
    idle: Arc<Idle>,
}

/// The connections to each host, with the time since when nobody has used them; the latest used last. By its name, because
/// an `Authority` is hashed letter by letter.
type Links = HashMap<String, Vec<(Box<Link>, Instant)>>;

/// Connections that wait for a request.
struct Idle {
    links: Mutex<Links>,
    limit: Duration,
    most: usize,
}

impl Pool {
    /// `limit` is how long a connection may wait, `most` how many may, for each host.
    pub fn new(connector: Http, limit: Duration, most: usize) -> Self {
        Self { connector, idle: Arc::new(Idle { links: Mutex::default(), limit, most }) }
    }

    pub async fn send(
        &self,
        mut request: Request<OutboundBody>,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let uri = request.uri().clone();
        let Some(authority) = uri.authority() else {
            return Err(SendError::Connect("the address has no host".into()));
        };
        request.headers_mut().entry(HOST).or_insert_with(|| host_header(&uri, authority));
        *request.uri_mut() = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")).into();
        loop {
            let (mut link, reused) = match self.idle.take(authority) {
                Some(link) => (link, true),
                None => (self.connect(&uri).await?, false),
            };
            match link.send(request).await {
                Ok(response) => {
                    let (head, incoming) = response.into_parts();
                    let home = Some((Arc::clone(&self.idle), authority.clone()));
                    let mut answer = UpstreamBody { incoming, link: Some(link), home };
                    answer.give_back_at_end();
                    return Ok(Response::from_parts(head, answer));
                }
                Err(mut error) => match error.take_message() {
                    // The provider closed it before anything was sent: that is no answer of its.
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    pub fn sweep(&self) {
        let now = Instant::now();
        self.idle.lock().retain(|_, links| {
            links.retain_mut(|(link, since)| now < *since + self.idle.limit && link.is_open());
            !links.is_empty()
        });
    }

    async fn connect(&self, uri: &Uri) -> Result<Box<Link>, SendError> {
        let io = self.connector.clone().oneshot(uri.clone()).await;
        let io = io.map_err(|error| SendError::Connect(error.into()))?;
        let (sender, connection) = http1::Builder::new().handshake(io).await?;
        let turn = Arc::new(Turn::default());
        Ok(Box::new(Link { sender, connection, waker: Arc::clone(&turn).into(), turn, ended: false }))
    }
}

fn host_header(uri: &Uri, authority: &Authority) -> HeaderValue {
    let host = match (authority.port_u16(), uri.scheme_str()) {
        (Some(80), Some("http")) => authority.host(),
        _ => authority.as_str().rsplit('@').next().unwrap_or_default(),
    };
    HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static(""))
}

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that was used last, of those that can be used still.
    fn take(&self, authority: &Authority) -> Option<Box<Link>> {
        let mut links = self.lock();
        let waiting = links.get_mut(authority.as_str())?;
        while let Some((mut link, since)) = waiting.pop() {
            if since.elapsed() < self.limit && link.is_open() {
                return Some(link);
            }
        }
        None
    }

    fn put(&self, authority: &Authority, mut link: Box<Link>) {
        if !link.is_open() {
            return;
        }
        let mut links = self.lock();
        let waiting = match links.get_mut(authority.as_str()) {
            Some(waiting) => waiting,
            None => links.entry(authority.as_str().to_owned()).or_default(),
        };
        if waiting.len() < self.most {
            waiting.push((link, Instant::now()));
        }
    }
}

/// An open connection.
struct Link {
    sender: SendRequest<OutboundBody>,
    connection: Connection<TokioIo<TcpStream>, OutboundBody>,
    turn: Arc<Turn>,
    waker: Waker,
    ended: bool,
}

type Unsent = hyper::client::conn::TrySendError<Request<OutboundBody>>;

impl Link {
    async fn send(&mut self, request: Request<OutboundBody>) -> Result<Response<Incoming>, Unsent> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let Self { connection, turn, waker, ended, .. } = self;
        std::future::poll_fn(|context| {
            turn.poll(context, waker, |context| {
                drive(connection, ended, context);
                sending.as_mut().poll(context)
            })
        })
        .await
    }

    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { connection, turn, waker, ended, .. } = self;
        turn.poll(context, waker, |context| {
            drive(connection, ended, context);
            Pin::new(&mut *body).poll_frame(context)
        })
    }

    /// Looks whether it can take a request. Nobody is woken for a connection that waits.
    fn is_open(&mut self) -> bool {
        drive(&mut self.connection, &mut self.ended, &mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }
}

/// Reads and writes what there is to be. The outcome is told to whoever waits for the answer or its body.
fn drive(
    connection: &mut Connection<TokioIo<TcpStream>, OutboundBody>,
    ended: &mut bool,
    context: &mut Context<'_>,
) {
    if !*ended {
        *ended = Pin::new(connection).poll(context).is_ready();
    }
}

/// Whose turn it is. A connection and the call that it carries wake each other; as they run in one task, that only means
/// that they are polled once more, which is done on the spot instead of by way of the scheduler.
#[derive(Default)]
struct Turn {
    state: AtomicU8,
    task: AtomicWaker,
}

const RESTING: u8 = 0;
const POLLING: u8 = 1;
const AGAIN: u8 = 2;
/// Beyond this others get their turn first.
const MOST_TURNS: usize = 16;

impl Turn {
    fn poll<T>(
        &self,
        outer: &mut Context<'_>,
        waker: &Waker,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.task.register(outer.waker());
        let mut inner = Context::from_waker(waker);
        for _ in 0..MOST_TURNS {
            self.state.store(POLLING, Ordering::Release);
            if let Poll::Ready(outcome) = poll(&mut inner) {
                self.state.store(RESTING, Ordering::Release);
                return Poll::Ready(outcome);
            }
            let rests =
                self.state.compare_exchange(POLLING, RESTING, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if rests {
                return Poll::Pending;
            }
        }
        self.state.store(RESTING, Ordering::Release);
        outer.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| (state != RESTING).then_some(AGAIN));
        if noted.is_err() {
            self.task.wake();
        }
    }
}

/// The body of an answer, with the connection that it comes from. At its end the connection goes back to the pool.
pub struct UpstreamBody {
    incoming: Incoming,
    link: Option<Box<Link>>,
    home: Option<(Arc<Idle>, Authority)>,
}

impl UpstreamBody {
    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let (Some(link), Some((idle, authority))) = (self.link.take(), self.home.take()) {
            idle.put(&authority, link);
        }
    }
}

/// An answer that comes through someone else's pool.
impl From<Incoming> for UpstreamBody {
    fn from(incoming: Incoming) -> Self {
        Self { incoming, link: None, home: None }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { incoming, link, .. } = &mut *self;
        let polled = match link {
            Some(link) => link.poll_body(context, incoming),
            None => Pin::new(incoming).poll_frame(context),
        };
        match &polled {
            Poll::Ready(Some(Ok(_))) => self.give_back_at_end(),
            Poll::Ready(None) => self.give_back(),
            Poll::Ready(Some(Err(_))) => self.link = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
