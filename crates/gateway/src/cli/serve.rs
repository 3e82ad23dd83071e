//! `gateway serve`: the service from start to stop.

use std::io::{IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, migrations};
use crate::app::App;
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::server::{self, Server};
use crate::{admin, console, exposure};

pub async fn serve(config: Config, started: Instant) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::Other(error.to_string()))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::Other(error.to_string()))?;
    let listener = server::bind(config.listen).await?;
    let admin = match config.admin_listen {
        Some(address) => Some(server::bind(address).await?),
        None => None,
    };
    migrations::before_start(&config).await?;
    let app = App::start(config, Clock::default()).await?;
    let server = Server::start(Arc::clone(&app))?;
    if let Some(listener) = admin {
        app.services.tasks.spawn(admin::serve(Arc::clone(&app), listener));
    }
    let address = listener.local_addr().map_err(|error| Failure::Other(error.to_string()))?;
    let scheme = if app.services.config.tls.is_some() { "https" } else { "http" };
    log_ready(&app, &format!("{scheme}://{}", reachable(address)), started.elapsed());
    exposure::log(&app.services);
    let serving = server.run(listener);
    let stopper = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: finishing the requests in progress");
        app.services.tasks.begin_stop();
    };
    tokio::join!(serving, stopper);
    app.finish_stop(Duration::from_secs(10)).await;
    tracing::info!("stopped");
    Ok(())
}

/// Logs the addresses of the service and its data, and on a terminal prints the first steps.
fn log_ready(app: &App, url: &str, took: Duration) {
    let data = app.services.config.data_dir.display().to_string();
    let database = config::masked_database_url(&app.services.config);
    let console = format!("{url}{}", console::HOME);
    let ready_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(url, console, data, database, ready_ms, "gateway {} is ready", env!("CARGO_PKG_VERSION"));
    if std::io::stderr().is_terminal() {
        let _ =
            writeln!(std::io::stderr(), "{}", first_steps(url, &console, &format!("{data} ({database})")));
    }
}

/// The address at which this machine reaches the service. One that listens on all interfaces is reached on loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// What a person who starts the service for the first time needs to know.
fn first_steps(url: &str, console: &str, data: &str) -> String {
    format!(
        "\n  Console   {console}\n  Clients   {url}/sdk/v1 (OpenAI), {url}/sdk (Anthropic, Google)\n  \
         Data      {data}\n\n  First steps\n    \
         1. Open the console and sign up. It shows your API key.\n    \
         2. Ask the built-in sandbox, which needs no provider account:\n       \
         curl {url}/sdk/v1/chat/completions -H \"Authorization: Bearer $KEY\" \\\n         \
         -d '{{\"model\": \"sandbox/sandbox-small\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n    \
         3. Store the credential of a provider in the console under Providers.\n\n  \
         Ctrl-C stops it. `gateway doctor` checks the installation.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_have_addresses_that_can_be_used_as_they_are() {
        let text = first_steps("http://127.0.0.1:8080", "http://127.0.0.1:8080/console/", "./data");
        for part in ["http://127.0.0.1:8080/console/", "http://127.0.0.1:8080/sdk/v1 ", "Bearer $KEY\" \\\n"]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn an_address_of_all_interfaces_is_shown_as_one_that_can_be_opened() {
        let shown = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(shown("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(shown("[::]:8080"), "[::1]:8080");
        assert_eq!(shown("10.0.0.7:8080"), "10.0.0.7:8080");
    }
}
