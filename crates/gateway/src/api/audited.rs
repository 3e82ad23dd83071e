//! The application for a handler that changes something: with the audit entry of the request.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use gateway_core::accounts::AuditReads;
use gateway_core::audit::{Draft, Target};
use gateway_store::db::Dialect;
use gateway_store::{Tx, audit};
use http::request::Parts;

use super::openapi::{Operation, OperationInput};
use crate::app::App;
use crate::audit::AuditContext;
use crate::auth::{Identity, Principal};
use crate::problem::{ApiResult, Problem};

/// What the audit log says about a request that only reads.
pub struct AuditedRead(Arc<AuditContext>);

impl AuditedRead {
    /// Records a read, behind the response, if the organization wants it.
    pub fn record(&self, app: &App, identity: &Identity, action: &str, target: Target) {
        let reads = identity.org.settings.audit_reads;
        let is_recorded = match identity.principal {
            Principal::User { .. } => reads != AuditReads::Off,
            Principal::Key(_) => reads == AuditReads::All,
            Principal::Org => false,
        };
        if is_recorded {
            let mut entry = self.0.entry(&app.services).action(action);
            (entry.target, entry.status) = (target, Some(200));
            app.audit.push(entry);
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for AuditedRead {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        context(parts).map(Self)
    }
}

impl OperationInput for AuditedRead {
    fn describe(_: &mut Operation<'_>) {}
}

fn context(parts: &Parts) -> ApiResult<Arc<AuditContext>> {
    let context = parts.extensions.get::<Arc<AuditContext>>();
    context.cloned().ok_or_else(|| Problem::internal("the request has no audit context"))
}

pub struct Audited {
    app: Arc<App>,
    context: Arc<AuditContext>,
}

impl Deref for Audited {
    type Target = Arc<App>;

    fn deref(&self) -> &Arc<App> {
        &self.app
    }
}

impl Audited {
    /// The entry of this request, with the target that the path names. Give it to the transaction of the change.
    pub fn entry(&self) -> Draft {
        self.context.entry(&self.app.services)
    }

    /// Writes the entry of something that has no transaction.
    pub async fn write(&self, entry: Draft) -> ApiResult<()> {
        Ok(audit::write(&self.app.services.db, vec![entry]).await?)
    }

    /// Records an entry with a change of the log database, just before its commit. On SQLite that is another file: the
    /// entry is committed first, so that nothing is changed without one.
    pub async fn record_beside(&self, tx: &mut Tx, entry: Draft) -> ApiResult<()> {
        if tx.dialect() == Dialect::Sqlite {
            return self.write(entry).await;
        }
        tx.record(entry);
        Ok(())
    }
}

impl FromRequestParts<Arc<App>> for Audited {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        Ok(Self { app: Arc::clone(app), context: context(parts)? })
    }
}

impl OperationInput for Audited {
    fn describe(operation: &mut Operation<'_>) {
        operation.audited = true;
    }
}
