//! The limit of attempts per address on endpoints without authentication.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::extract::ClientIp;
use super::openapi::{Operation, OperationInput};
use crate::app::App;
use crate::attempts::AttemptKind;
use crate::problem::Problem;

/// An endpoint with limited attempts, as a type.
pub(super) trait LimitedEndpoint: Send + Sync {
    const ATTEMPT: AttemptKind;
}

pub(super) struct SignupEndpoint;
pub(super) struct LoginEndpoint;
pub(super) struct SetupEndpoint;
pub(super) struct ResetEndpoint;

impl LimitedEndpoint for SignupEndpoint {
    const ATTEMPT: AttemptKind = AttemptKind::Signup;
}

impl LimitedEndpoint for LoginEndpoint {
    const ATTEMPT: AttemptKind = AttemptKind::Login;
}

impl LimitedEndpoint for SetupEndpoint {
    const ATTEMPT: AttemptKind = AttemptKind::Setup;
}

impl LimitedEndpoint for ResetEndpoint {
    const ATTEMPT: AttemptKind = AttemptKind::Reset;
}

/// Rejects an address with too many attempts. It counts before the body is read, so that every request counts.
pub(super) struct AttemptLimit<E>(PhantomData<E>);

impl<E: LimitedEndpoint> FromRequestParts<Arc<App>> for AttemptLimit<E> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let ClientIp(address) = ClientIp::from_request_parts(parts, app).await?;
        let verdict = app.attempts.count_attempt(E::ATTEMPT, address).await;
        if verdict.allowed {
            Ok(Self(PhantomData))
        } else {
            Err(Problem::rate_limited(
                verdict,
                app.services.clock.now(),
                "too many attempts from this address; try again later",
            ))
        }
    }
}

impl<E: LimitedEndpoint> OperationInput for AttemptLimit<E> {
    fn describe(_: &mut Operation<'_>) {}
}
