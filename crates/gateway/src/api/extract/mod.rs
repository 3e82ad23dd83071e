//! Extractors: the parts of a request that handlers take as arguments besides the caller. Each one rejects bad input
//! with an error that names the parameter or field, and describes itself to the OpenAPI document.

mod body;
mod deserialize;
mod path;
mod query;

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::openapi::{Operation, OperationInput};
use crate::memory::RequestMemory;
use crate::problem::Problem;

pub use body::{Body, LimitedBody, OptionalBody};
pub(super) use body::{BodyLimits, read_body, request_memory};
pub use deserialize::{double_option, optional_object, without_fields};
pub use path::{FromPath, PathParam};
pub(super) use path::{integer_path_param, path_param, text_path_param};
pub use query::{PagedQuery, QueryParams};

/// The client's address: that of the peer, or the one that a trusted proxy reports.
pub struct ClientIp(pub IpAddr);

impl<S: Send + Sync> FromRequestParts<S> for ClientIp {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let address = parts.extensions.get::<IpAddr>().copied();
        address.map(Self).ok_or_else(|| Problem::internal("the peer address of the request is not set"))
    }
}

impl OperationInput for ClientIp {
    fn describe(_: &mut Operation<'_>) {}
}

/// The memory of a response with rows that may be large. It is reserved before they are read, and when the response has
/// been made, what it does not take is released.
pub struct ResponseRoom(RequestMemory);

impl ResponseRoom {
    /// Each byte of a row is held as the database returned it, in the row, and in the text of the response.
    const HELD_PER_BYTE: usize = 3;

    /// Reserves the memory for rows with so many bytes. Few need no room.
    pub fn reserve(&self, bytes: i64) -> Result<(), Problem> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(self.0.reserve_response(bytes, Self::HELD_PER_BYTE)?)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ResponseRoom {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let memory = parts.extensions.get::<RequestMemory>().cloned();
        memory.map(Self).ok_or_else(|| Problem::internal("the memory of the request is not set"))
    }
}

impl OperationInput for ResponseRoom {
    fn describe(_: &mut Operation<'_>) {}
}
