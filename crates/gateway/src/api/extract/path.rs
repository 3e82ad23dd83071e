//! Path parameters.

use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use gateway_core::ids::{
    AlertId, AppId, AuditId, BudgetId, CaseId, DatasetId, DeliveryId, ExportId, InstallLinkId, InviteId,
    KeyId, LimitId, OrgId, PlayId, RubricId, SkillId, TeamId, TokenId, UserId, ViewId, WebhookId,
};
use http::StatusCode;
use http::request::Parts;
use serde_json::json;

use crate::api::error_format_of;
use crate::api::openapi::{Operation, OperationInput};
use crate::problem::{ErrorFormat, Problem};

/// A type that can be read from a path parameter such as `{keyId}`.
pub trait FromPath: Sized {
    const NAME: &'static str;
    fn parse(text: &str) -> Result<Self, String>;
    fn schema() -> serde_json::Value;
}

/// One parameter of the path.
pub struct PathParam<T>(pub T);

impl<T: FromPath, S: Send + Sync> FromRequestParts<S> for PathParam<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        path_param(parts, state).await.map(Self)
    }
}

impl<T: FromPath> OperationInput for PathParam<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation
            .parameters
            .push(json!({"name": T::NAME, "in": "path", "required": true, "schema": T::schema()}));
    }
}

/// Reads the path parameter that `T` names.
pub(in crate::api) async fn path_param<T: FromPath, S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<T, Problem> {
    let format = error_format_of(parts.uri.path());
    let invalid = |why: &str| {
        let code = if format == ErrorFormat::ErrorCode { "invalid_id" } else { "bad_request" };
        Problem::new(StatusCode::BAD_REQUEST, code, format!("path parameter {}: {why}", T::NAME))
    };
    let params =
        RawPathParams::from_request_parts(parts, state).await.map_err(|_| invalid("is not valid UTF-8"))?;
    let param = params.iter().find(|(name, _)| *name == T::NAME);
    let (_, text) = param.ok_or_else(|| invalid("is missing"))?;
    T::parse(text).map_err(|why| invalid(&why))
}

macro_rules! id_params {
    ($($type:ty = $name:literal),+ $(,)?) => {$(
        impl FromPath for $type {
            const NAME: &'static str = $name;

            fn parse(text: &str) -> Result<Self, String> {
                <$type>::from_str(text).map_err(|error| error.to_string())
            }

            fn schema() -> serde_json::Value {
                json!({"type": "string", "format": "uuid"})
            }
        }
    )+};
}
id_params!(
    OrgId = "orgId",
    KeyId = "keyId",
    TeamId = "teamId",
    AppId = "appId",
    BudgetId = "budgetId",
    AlertId = "alertId",
    LimitId = "limitId",
    UserId = "userId",
    InviteId = "inviteId",
    TokenId = "userSessionId",
    DatasetId = "datasetId",
    CaseId = "caseId",
    PlayId = "playId",
    SkillId = "skillId",
    InstallLinkId = "installLinkId",
    RubricId = "rubricId",
    WebhookId = "webhookId",
    DeliveryId = "deliveryId",
    ExportId = "exportId",
    ViewId = "viewId",
    AuditId = "auditId",
);

/// Declares the type of an id that is an integer: `integer_path_param!(/// doc … RunId = "runId");`
macro_rules! integer_path_param {
    ($(#[$doc:meta])* $name:ident = $param:literal) => {
        $(#[$doc])*
        pub(super) struct $name(pub i64);

        impl $crate::api::extract::FromPath for $name {
            const NAME: &'static str = $param;

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map(Self).map_err(|_| "not a valid id: expected a whole number".into())
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"type": "integer", "format": "int64"})
            }
        }
    };
}
pub(in crate::api) use integer_path_param;

/// Declares the type of a parameter that may be any text: `text_path_param!(/// doc … SessionId = "sessionId");`
macro_rules! text_path_param {
    ($(#[$doc:meta])* $name:ident = $param:literal) => {
        $(#[$doc])*
        struct $name(String);

        impl $crate::api::extract::FromPath for $name {
            const NAME: &'static str = $param;

            fn parse(text: &str) -> Result<Self, String> {
                if text.contains('\0') {
                    return Err("must not contain NUL characters".into());
                }
                Ok(Self(text.into()))
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"type": "string"})
            }
        }
    };
}
pub(in crate::api) use text_path_param;
