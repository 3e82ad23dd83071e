//! Areas of the API and their routes.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::operation::{Documented, Operation};
use crate::app::App;

/// One area of the API. Its name is the same in the URL, the handler file, the store file, the tests and the document.
pub struct Area {
    pub tag: &'static str,
    pub description: &'static str,
    pub routes: Vec<Route>,
}

pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub summary: &'static str,
    pub operation_id: String,
    /// Root routes have no `/api/v1` prefix.
    pub root: bool,
    pub handler: MethodRouter<Arc<App>>,
    describe: fn(&mut Operation<'_>),
}

impl Route {
    pub fn describe(&self, operation: &mut Operation<'_>) {
        (self.describe)(operation);
    }
}

/// The future of every function that is a handler.
type HandlerFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler whose type is erased. axum wraps a handler in several services, which are other types for each handler. To
/// prove that their futures are `Send` took the compiler half of its time before code generation.
#[derive(Clone)]
struct ErasedHandler(Arc<dyn Fn(Request, Arc<App>) -> HandlerFuture + Send + Sync>);

/// The marker type of `Handler`, which distinguishes its implementations.
struct ByErasure;

impl Handler<ByErasure, Arc<App>> for ErasedHandler {
    type Future = HandlerFuture;

    fn call(self, request: Request, app: Arc<App>) -> HandlerFuture {
        (self.0)(request, app)
    }
}

impl ErasedHandler {
    fn new<H, T>(handler: H) -> Self
    where
        H: Handler<T, Arc<App>, Future = HandlerFuture>,
    {
        Self(Arc::new(move |request, app| handler.clone().call(request, app)))
    }
}

macro_rules! methods {
    ($($name:ident = $filter:ident),+ $(,)?) => {$(
        #[must_use]
        pub fn $name<H, T>(self, path: &'static str, handler: H, summary: &'static str) -> Self
        where
            H: Handler<T, Arc<App>, Future = HandlerFuture> + Documented<T>,
            T: 'static,
        {
            self.add((stringify!($name), MethodFilter::$filter), path, handler, summary)
        }
    )+};
}

impl Area {
    pub fn new(tag: &'static str, description: &'static str) -> Self {
        Self { tag, description, routes: Vec::new() }
    }

    methods!(get = GET, post = POST, put = PUT, patch = PATCH, delete = DELETE);

    /// Moves the routes added so far to the root, outside `/api`.
    #[must_use]
    pub fn at_root(mut self) -> Self {
        self.routes.iter_mut().for_each(|route| route.root = true);
        self
    }

    fn add<H, T>(
        mut self,
        (method, filter): (&'static str, MethodFilter),
        path: &'static str,
        handler: H,
        summary: &'static str,
    ) -> Self
    where
        H: Handler<T, Arc<App>, Future = HandlerFuture> + Documented<T>,
        T: 'static,
    {
        let function = std::any::type_name::<H>().rsplit("::").next().unwrap_or_default();
        self.routes.push(Route {
            method,
            path,
            summary,
            operation_id: format!("{}_{function}", self.tag.replace('-', "_")),
            root: false,
            handler: on(filter, ErasedHandler::new(handler)),
            describe: <H as Documented<T>>::describe,
        });
        self
    }
}
