//! Metrics of the whole process, for the operator's Prometheus. Requests only add to atomics that their own thread has
//! to itself, or nearly so; everything else is done when metrics are scraped.

pub mod events;
pub mod exposition;
pub mod node;
pub mod process;
mod requests;

use gateway_core::logs::LogRow;

use events::{Events, LaneEvents};
use exposition::{Exposition, Format, Kind};
use node::NodeState;
use process::ProcessStats;
use requests::{MAX_SERIES, Requests};

pub struct Metrics {
    requests: Requests,
    lanes: Vec<LaneEvents>,
    pub events: Events,
}

impl Metrics {
    /// `lanes` is the number of worker threads.
    pub fn new(lanes: usize) -> Self {
        Self::with_max_series(lanes, MAX_SERIES)
    }

    fn with_max_series(lanes: usize, max_series: usize) -> Self {
        Self {
            requests: Requests::new(lanes, max_series),
            lanes: (0..lanes.max(1)).map(|_| LaneEvents::default()).collect(),
            events: Events::default(),
        }
    }

    /// Counts a finished request. `lane` is the worker thread that served it.
    pub fn count(&self, lane: usize, row: &LogRow) {
        self.requests.count(lane, row);
    }

    /// The counters of a worker thread.
    pub fn lane(&self, lane: usize) -> &LaneEvents {
        &self.lanes[lane % self.lanes.len()]
    }

    pub fn render(&self, format: Format, node: &NodeState, process: Option<&ProcessStats>) -> String {
        let mut out = Exposition::new(format);
        let help = "The version of the gateway, and what it was built for.";
        out.family("gateway_build", Kind::Info, help).sample(
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("os", std::env::consts::OS),
                ("arch", std::env::consts::ARCH),
            ],
            1,
        );
        if let Some(process) = process {
            process.write(&mut out);
        }
        node.write(&mut out);
        self.requests.write(&mut out);
        events::write_lanes(&mut out, &self.lanes);
        self.events.write(&mut out);
        out.finish()
    }
}

/// Whether an organization may name one more of the things that metrics tell apart, of which `used` are named. It leaves
/// as many as it has itself: half of them to the first, half of the rest to the next. So some are left for those that come
/// later, however many organizations use up theirs.
fn leaves_room(max: usize, used: usize, own: usize) -> bool {
    own < max.saturating_sub(used)
}

#[cfg(test)]
mod tests;
