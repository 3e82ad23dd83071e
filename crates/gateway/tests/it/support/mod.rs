//! Shared fixtures: a gateway on its own port, an HTTP client, and accounts.

mod app;
pub mod assertions;
pub mod claude;
pub mod client;
mod cluster;
mod databases;
pub mod datasets;
mod evals;
pub mod fallback_chain;
pub mod limits;
mod load_balancer;
pub mod log_rows;
pub mod mcp;
pub mod mcp_server;
pub mod named_models;
mod process;
mod proxy;
mod raw_http;
pub mod receiver;
pub mod routes;
pub mod skills;
mod tcp_forwarder;
pub mod tls;

pub use app::{
    Account, Backend, MASTER_KEY, PASSWORD, TOKEN_SECRET, TestApp, fresh_config, fresh_settings,
    migrated_config,
};
pub use client::{TestRequest, TestResponse};
pub use cluster::{Cluster, chat_request, wait_for_response};
pub use databases::migrated_postgres;
pub use load_balancer::LoadBalancer;
pub use process::{GatewayProcess, ProcessOutput, command, limited_command, run};
pub use proxy::{ProxyFixture, all_log_ids, log_id};
pub use raw_http::{RawConnection, http_chunk, request, request_head};
pub use tcp_forwarder::TcpForwarder;

/// Runs a test on both databases: `on_both!(name, |app| async move { … })` makes `name::sqlite` and
/// `name::postgres`. A second form takes settings: `on_both!(name, [("GATEWAY_…", "…")], |app| …)`.
#[macro_export]
macro_rules! on_both {
    ($name:ident, |$app:ident| $body:expr) => {
        $crate::on_both!($name, [], |$app| $body);
    };
    ($name:ident, $settings:expr, |$app:ident| $body:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "a test uses what it needs of its file's imports")]
            use super::*;

            async fn body($app: $crate::support::TestApp) {
                $body.await
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                let app =
                    $crate::support::TestApp::start_with($crate::support::Backend::Sqlite, &$settings).await;
                body(app).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                let app =
                    $crate::support::TestApp::start_with($crate::support::Backend::Postgres, &$settings)
                        .await;
                body(app).await;
            }
        }
    };
}
