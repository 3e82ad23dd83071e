//! The server's own log: readable text on a terminal, JSON lines otherwise.

use std::io::IsTerminal as _;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Installs the subscriber. Libraries log warnings at most, because their debug output may contain secrets.
pub(crate) fn init(level: Level) {
    let targets = Targets::new().with_default(level.min(Level::WARN)).with_target("gateway", level);
    let registry = tracing_subscriber::registry().with(targets);
    // A second call (in tests) keeps the first subscriber.
    let _ = if std::io::stderr().is_terminal() {
        registry
            .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false))
            .try_init()
    } else {
        registry
            .with(tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr))
            .try_init()
    };
}
