//! The hooks of the program: all of them are empty.

use std::fs::File;
use std::io::{IoSlice, Result, Write as _};

use super::{DbCall, DiskCall, KillPoint};
use crate::{StoreError, Tx};

#[derive(Clone, Default)]
pub struct Faults;

/// What became of a call.
pub(crate) struct Outcome;

impl Faults {
    #[inline]
    #[expect(clippy::unused_async, reason = "the hook of tests waits")]
    pub(crate) async fn before(&self, _: DbCall) -> std::result::Result<(), StoreError> {
        Ok(())
    }

    #[inline]
    pub fn disk(&self, _: DiskCall) -> Result<()> {
        Ok(())
    }

    #[inline]
    pub fn write(&self, file: &mut File, parts: &[IoSlice<'_>]) -> Result<usize> {
        file.write_vectored(parts)
    }
}

impl Outcome {
    #[inline]
    pub(crate) fn of_commit(
        self,
        result: std::result::Result<(), StoreError>,
    ) -> std::result::Result<(), StoreError> {
        result
    }
}

#[inline]
#[expect(clippy::unused_async, reason = "the hook of tests waits")]
pub(crate) async fn within(_: &mut Tx, _: DbCall) -> std::result::Result<Outcome, StoreError> {
    Ok(Outcome)
}

#[inline]
#[expect(clippy::unused_async, reason = "the hook of tests waits")]
pub(crate) async fn at_begin(_: &mut Tx) -> std::result::Result<(), StoreError> {
    Ok(())
}

#[inline]
pub fn kill_point(_: KillPoint) {}
