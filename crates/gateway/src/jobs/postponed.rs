//! A job of a change that is made in several transactions. The first of them enqueues the job for later, each of the
//! others postpones it, and the last one starts it. If the change ends half way, because the process is killed, the job
//! runs all the same: it finds the change incomplete and deletes what there is of it.

use std::time::Duration;

use gateway_core::ids::{JobId, OrgId};
use gateway_store::jobs::{self, NewJob};
use gateway_store::{StoreError, Tx};

use super::{Job, JobServices, Queued, new_job, serialize};

/// The longest time between two transactions of a change.
const DELAY: Duration = Duration::from_secs(30);

/// A job that runs later.
#[derive(Debug)]
pub struct Postponed {
    id: JobId,
    name: &'static str,
}

impl Postponed {
    pub async fn enqueue<J: Job>(
        job_services: &JobServices,
        tx: &mut Tx,
        org: OrgId,
        job: &J,
    ) -> Result<Self, StoreError> {
        let (payload, dedup_key) = serialize(job)?;
        let new = new_job::<J>(job_services, org, &payload, dedup_key.as_deref());
        let new = NewJob { due_at: new.now.after(DELAY), ..new };
        jobs::enqueue(tx, &new).await?;
        Ok(Self { id: new.id, name: J::NAME })
    }

    /// Returns false if the job runs already. The change must not go on then.
    pub async fn postpone(&self, job_services: &JobServices, tx: &mut Tx) -> Result<bool, StoreError> {
        let now = job_services.services.clock.now();
        jobs::set_due(tx, self.id, now.after(DELAY)).await
    }

    /// Lets the job run after the commit. Returns `None` if it runs already.
    pub async fn start(&self, job_services: &JobServices, tx: &mut Tx) -> Result<Option<Queued>, StoreError> {
        let is_due = jobs::set_due(tx, self.id, job_services.services.clock.now()).await?;
        Ok(is_due.then_some(Queued { name: self.name, added: true }))
    }
}
