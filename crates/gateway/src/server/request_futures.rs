//! The futures that handle requests. That of a proxied request takes some 15 KB, which would be made on the stack and
//! copied to the heap for each request, although nothing has filled them yet. So a future handles one request after the
//! other, and a worker keeps those that are idle.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::response::Response;
use http::Request;
use hyper::body::Incoming;

use super::dispatch::{Dispatcher, respond};

/// Idle futures that a worker keeps, about a megabyte.
const MAX_IDLE: usize = 64;

/// The idle futures of a worker.
#[derive(Default)]
pub struct RequestFutures {
    idle: Mutex<Vec<RequestFuture>>,
}

/// A future that never ends.
struct RequestFuture {
    future: Pin<Box<dyn Future<Output = Infallible> + Send>>,
    handover: Arc<Handover>,
}

/// What goes into such a future and what comes out of it.
#[derive(Default)]
struct Handover {
    received: Mutex<Option<Received>>,
    response: Mutex<Option<Response>>,
}

struct Received {
    dispatcher: Arc<Dispatcher>,
    peer: SocketAddr,
    request: Request<Incoming>,
}

/// A request that is handled. Dropping it drops what has been done of the request.
pub struct Handling {
    /// None once there is a response, or after a panic.
    future: Option<RequestFuture>,
    futures: Arc<RequestFutures>,
}

impl RequestFutures {
    pub fn handle(
        self: &Arc<Self>,
        dispatcher: &Arc<Dispatcher>,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Handling {
        let future = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let future = future.unwrap_or_else(RequestFuture::new);
        let received = Received { dispatcher: Arc::clone(dispatcher), peer, request };
        *future.handover.received.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
        Handling { future: Some(future), futures: Arc::clone(self) }
    }

    fn keep(&self, future: RequestFuture) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(future);
        }
    }
}

impl RequestFuture {
    fn new() -> Self {
        let handover = Arc::<Handover>::default();
        Self { future: Box::pin(handle_all(Arc::clone(&handover))), handover }
    }
}

async fn handle_all(handover: Arc<Handover>) -> Infallible {
    loop {
        let next = |_: &mut Context<'_>| match handover.take_received() {
            Some(received) => Poll::Ready(received),
            None => Poll::Pending,
        };
        let Received { dispatcher, peer, request } = std::future::poll_fn(next).await;
        let response = {
            // Pinned where it is made: awaited as a value, it would be moved, which copies all of it twice.
            let responding = pin!(respond(&dispatcher, peer, request));
            responding.await
        };
        // An idle future keeps nothing of the worker.
        drop(dispatcher);
        handover.set_response(response);
    }
}

impl Handover {
    fn take_received(&self) -> Option<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set_response(&self, response: Response) {
        *self.response.lock().unwrap_or_else(PoisonError::into_inner) = Some(response);
    }

    fn take_response(&self) -> Option<Response> {
        self.response.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Future for Handling {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        // Taken out while it is polled, so that a future that panics is not used again.
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        match future.future.as_mut().poll(context) {
            Poll::Pending => {}
            Poll::Ready(never) => match never {},
        }
        let Some(response) = future.handover.take_response() else {
            self.future = Some(future);
            return Poll::Pending;
        };
        self.futures.keep(future);
        Poll::Ready(response)
    }
}
