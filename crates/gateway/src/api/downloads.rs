//! Files that are made page by page while they are sent.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use gateway_core::ids::OrgId;
use gateway_store::StoreError;
use gateway_store::connection_shares::on_behalf_of;
use http::HeaderValue;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};

use crate::app::App;

/// A response that a browser saves under a name. An error of the body cuts the connection, so that a part does not look
/// like the whole.
pub(super) struct Download {
    pub body: Body,
    pub content_type: &'static str,
    pub name: String,
}

impl IntoResponse for Download {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{}\"", self.name)) {
            headers.insert(CONTENT_DISPOSITION, value);
        }
        response
    }
}

/// Reads the store on the main runtime, within the organization's share of queries: response bodies are polled on
/// workers, which must not use the database.
pub(super) async fn query<T: Send + 'static, E: From<StoreError> + Send + 'static>(
    app: &App,
    org: OrgId,
    read: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    let queries = Arc::clone(&app.shares.queries);
    let read = async move {
        let slot = queries.acquire(org, None).await;
        let _slot = slot.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        read.await
    };
    let done = app.services.tasks.runtime.spawn(on_behalf_of(org, read)).await;
    done.unwrap_or_else(|error| Err(StoreError::Other(error.to_string()).into()))
}
