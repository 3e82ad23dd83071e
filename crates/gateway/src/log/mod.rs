//! The log: rows are appended to a spool on disk before their response ends, and moved from there to the store.

pub mod spool;
pub mod tempo;
pub mod upkeep;
pub mod writer;

use std::time::Duration;

use crate::app::App;

/// Waits until the rows that have been made on this node can be read from the store, but not for long: for whoever asks
/// for "the latest" right behind a request.
pub async fn settle(app: &App) {
    const LOOKS: u32 = 100;
    for _ in 0..LOOKS {
        if app.proxy.spool.backlog() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
