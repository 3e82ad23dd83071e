//! The deletion of what may have very many rows. They are deleted in short transactions with pauses, so that the changes
//! of others do not wait for all of it: usually before what they belong to, and after an interruption the caller deletes
//! again. Versions, which are never changed, are deleted after it: a prompt, skill or named model is gone at once.

use gateway_core::ids::OrgId;
use gateway_store::partial_deletion::{self, RowsToDelete};
use gateway_store::versioned::{self, Versioned};
use gateway_store::{StoreError, Tx};

use crate::app::App;
use crate::jobs::delete_versions::DeleteVersions;
use crate::jobs::{Queued, enqueue_within};
use crate::problem::{ApiResult, Problem};
use crate::slices;

/// Large deletions of one organization that wait.
const MAX_WAITING: usize = 100;

pub(super) async fn delete_large_parts(app: &App, org: OrgId, what: RowsToDelete) -> Result<(), StoreError> {
    slices::delete_rows(&app.services.db, org, what).await
}

/// The deletion of a prompt, skill or named model with all its versions.
pub(super) struct VersionedDeletion {
    org: OrgId,
    what: Versioned,
    is_large: bool,
    queued: Option<Queued>,
}

impl VersionedDeletion {
    /// Looks how large it is, before the transaction.
    pub async fn new(app: &App, org: OrgId, what: Versioned) -> Result<Self, StoreError> {
        let rows = RowsToDelete::Versioned(what);
        let is_large = partial_deletion::is_large(&app.services.db, org, rows).await?;
        Ok(Self { org, what, is_large, queued: None })
    }

    /// Deletes it. If it is large, it is hidden, and a job deletes it. False when it does not exist.
    pub async fn delete(&mut self, app: &App, tx: &mut Tx) -> ApiResult<bool> {
        let Self { org, what, .. } = *self;
        if !self.is_large {
            return Ok(versioned::delete(tx, org, what).await?);
        }
        if !versioned::hide(tx, org, what).await? {
            return Ok(false);
        }
        let queued = enqueue_within(&app.jobs, tx, org, &DeleteVersions { what }, MAX_WAITING).await?;
        let full = || Problem::overloaded("too many large deletions are in progress; try again shortly");
        self.queued = Some(queued.ok_or_else(full)?);
        Ok(true)
    }

    /// Starts the job after the commit.
    pub fn finish(self, app: &App) {
        if let Some(queued) = self.queued {
            queued.notify(&app.jobs);
        }
    }
}
