//! Deletes a hidden prompt, skill or named model with all its versions. Until then nobody sees it, but it takes room.

use gateway_store::StoreError;
use gateway_store::partial_deletion::RowsToDelete;
use gateway_store::versioned::{self, Versioned};
use serde::{Deserialize, Serialize};

use super::{Job, JobContext, JobError, JobResult};
use crate::slices;

#[derive(Debug, Serialize, Deserialize)]
pub struct DeleteVersions {
    pub what: Versioned,
}

impl Job for DeleteVersions {
    const NAME: &'static str = "delete_versions";
    const CONCURRENCY: usize = 2;
    const CONCURRENCY_PER_ORG: i64 = 1;
    /// It is never given up, because nothing else deletes what is left.
    const MAX_ATTEMPTS: i64 = i64::MAX;

    async fn run(&self, context: &JobContext<'_>) -> Result<JobResult, JobError> {
        let (db, org) = (&context.job_services.services.db, context.org);
        slices::delete_rows(db, org, RowsToDelete::Versioned(self.what)).await?;
        versioned::delete_hidden(db, org, self.what).await?;
        Ok(JobResult::Finished)
    }

    async fn give_up(&self, _: &JobContext<'_>, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}
