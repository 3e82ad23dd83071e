//! Which of the queued rows an export sends: those that match its query.

use std::sync::Arc;

use gateway_core::ids::OrgId;
use gateway_core::query::{self, Query, QueryError};
use gateway_store::{Db, StoreError};

use crate::compute::{ComputeError, ComputePool, WaitLimits};
use crate::delivery::batch::Contents;
use crate::log::query_names;

/// The query of an export with the ids of the resources that it names; without one, every row is sent.
pub struct RowFilter(Option<Arc<Query>>);

impl RowFilter {
    pub async fn new(db: &Db, org: OrgId, text: &str) -> Result<Result<Self, QueryError>, StoreError> {
        if text.trim().is_empty() {
            return Ok(Ok(Self(None)));
        }
        let mut query = match query::parse(text) {
            Ok(query) => query,
            Err(error) => return Ok(Err(error)),
        };
        query_names::resolve(db, org, &mut query).await?;
        Ok(Ok(Self(Some(Arc::new(query)))))
    }

    /// Whether it needs the bodies of rows, even if they are not sent.
    pub fn reads_bodies(&self) -> bool {
        self.0.as_ref().is_some_and(|query| query.has_text())
    }

    /// Removes rows that do not match and verdicts on such rows, and returns their number. A query may search in bodies,
    /// so it is work of the organization.
    pub async fn apply(
        &self,
        compute: &ComputePool,
        org: OrgId,
        mut contents: Contents,
    ) -> Result<(Contents, usize), ComputeError> {
        let Some(query) = self.0.clone() else { return Ok((contents, 0)) };
        let filtering = compute.run(org, WaitLimits::JOB, move |_| {
            let before = contents.len();
            contents.rows.retain(|row| query.matches(row));
            contents.verdicts.retain(|(row, _)| query.matches(row));
            if !contents.content {
                contents.rows.iter_mut().for_each(|row| {
                    (row.request, row.response) = Default::default();
                });
            }
            let skipped = before - contents.len();
            (contents, skipped)
        });
        filtering.await
    }
}
