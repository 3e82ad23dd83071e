//! `gateway doctor`: what it finds on the machine, in the stores and on the way to providers, and the remedies.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gateway_store::Part;
use serde_json::Value;

use crate::support::tls::{Behind, TlsHost};
use crate::support::{Backend, GatewayProcess, ProcessOutput, command, fresh_settings, run};
use crate::upstream::{Reply, Upstream};

fn gateway(data: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> ProcessOutput {
    run(command(data, arguments).envs(settings.iter().copied()))
}

/// The verdict and the message of a check.
fn finding(done: &ProcessOutput, check: &str) -> (String, String) {
    let findings: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    let found = findings.as_array().unwrap().iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check} in {findings}"));
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("message"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_is_content_with_a_fresh_and_with_a_used_installation() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    for backend in Backend::BOTH {
        let data = tempfile::tempdir().unwrap();
        let mut settings = fresh_settings(backend, &data).await;
        settings.push(("GATEWAY_PROVIDER_OPENAI_BASE_URL".into(), upstream.url()));
        let doctor = || run(command(data.path(), &["doctor", "--json"]).envs(settings.iter().cloned()));
        let fresh = doctor();
        assert_eq!(fresh.code, Some(0), "{fresh:?}");
        for check in ["settings", "files", "disk", "clock", "database", "port", "egress", "providers"] {
            assert_ne!(finding(&fresh, check).0, "failed", "{fresh:?}");
        }
        drop(GatewayProcess::start(command(data.path(), &["serve"]).envs(settings.iter().cloned())));
        let used = doctor();
        assert_eq!(used.code, Some(0), "{used:?}");
        let (_, database) = finding(&used, "database");
        let versions = format!("schema {}/{}", Part::State.version(), Part::Logs.version());
        assert!(database.contains(&versions), "{database}");
    }
}

#[test]
fn doctor_names_what_is_wrong_and_the_remedy() {
    let here = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = here.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = [
        ("GATEWAY_LISTEN", address.as_str()),
        ("GATEWAY_REDIS_URL", "redis://127.0.0.1:9"),
        ("GATEWAY_PROVIDER_OPENAI_BASE_URL", "http://127.0.0.1:9"),
        ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-hidden"),
        ("GATEWAY_LISSTEN", "typo"),
    ];
    let done = gateway(here.path(), &["doctor"], &settings);
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in [
        "GATEWAY_LISSTEN",
        "GATEWAY_LISTEN",
        "GATEWAY_REDIS_URL",
        "GATEWAY_PROVIDER_OPENAI_BASE_URL",
        "chmod",
    ] {
        assert!(done.stdout.contains(part), "{part} is missing in {}", done.stdout);
    }
    assert!(done.stderr.contains("checks failed"), "{done:?}");
    assert!(!done.stdout.contains("sk-hidden"), "{done:?}");
    assert!(!data.join("master_key").exists(), "nothing is written");
    let offline = gateway(here.path(), &["doctor", "--offline", "--json"], &settings);
    assert_eq!(finding(&offline, "providers").0, "ok", "{offline:?}");
    let wrong = gateway(here.path(), &["doctor"], &[("GATEWAY_PUBLIC_DOCS", "perhaps")]);
    assert!(wrong.code == Some(1) && wrong.stdout.contains("GATEWAY_PUBLIC_DOCS"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_calls_providers_with_their_credentials() {
    let upstream = Upstream::start().await;
    let here = tempfile::tempdir().unwrap();
    let url = upstream.url();
    let settings = [
        ("GATEWAY_PROVIDER_OPENAI_BASE_URL", url.as_str()),
        ("GATEWAY_PROVIDER_OPENAI_API_KEY", "sk-operator"),
    ];
    upstream.set_default_reply(Reply::json(200, r#"{"data": []}"#));
    let good = gateway(here.path(), &["doctor", "--json"], &settings);
    assert_eq!((good.code, finding(&good, "providers").0.as_str()), (Some(0), "ok"), "{good:?}");
    let requests = upstream.requests();
    let sent = |index: usize| {
        let request = &requests[index];
        (request.method(), request.target(), request.header("authorization"))
    };
    let mut both = [sent(0), sent(1)];
    both.sort_unstable();
    assert_eq!(both, [("GET", "/v1/models", Some("Bearer sk-operator")), ("HEAD", "/", None)]);
    let earlier = Reply::json(200, r#"{"data": []}"#).header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    upstream.set_default_reply(earlier);
    let skewed = gateway(here.path(), &["doctor"], &settings);
    assert!(skewed.code == Some(0) && skewed.stdout.contains("openai says 1994-11-06"), "{skewed:?}");
    upstream.set_default_reply(Reply::json(401, r#"{"error": {"message": "no"}}"#));
    let refused = gateway(here.path(), &["doctor", "--json"], &settings);
    assert_eq!((refused.code, finding(&refused, "providers").0.as_str()), (Some(1), "failed"), "{refused:?}");
    assert!(refused.stdout.contains("GATEWAY_PROVIDER_OPENAI_API_KEY"), "{refused:?}");
}

/// The findings of `egress` and `clock` besides those about settings, with the status.
async fn reached(host: &str, certificates: Option<&str>) -> ProcessOutput {
    let here = tempfile::tempdir().unwrap();
    let mut settings = vec![("GATEWAY_PROVIDER_OPENAI_BASE_URL", host)];
    settings.extend(certificates.map(|file| ("SSL_CERT_FILE", file)));
    let settings: Vec<(String, String)> =
        settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    // The host answers on this runtime.
    tokio::task::spawn_blocking(move || run(command(here.path(), &["doctor"]).envs(settings))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_finds_missing_and_wrong_certificates() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}"));
    let address = upstream.url().trim_start_matches("http://").parse().unwrap();
    let host = TlsHost::start(&["http/1.1"], Behind::Forward(address)).await;
    let good = reached(&host.url(), Some(&host.certificate())).await;
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.stdout.contains("localhost answers by TLS"), "{good:?}");

    let other = TlsHost::start(&["http/1.1"], Behind::Forward(address)).await;
    let untrusted = reached(&host.url(), Some(&other.certificate())).await;
    assert!(untrusted.stdout.contains("certificate of localhost is not trusted here"), "{untrusted:?}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let none = reached(&host.url(), empty.path().to_str()).await;
    assert!(none.stdout.contains("the certificates of the system cannot be read"), "{none:?}");
    for failed in [untrusted, none] {
        assert!(failed.code == Some(1) && failed.stdout.contains("ca-certificates"), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_compares_the_time_without_a_credential_and_warns_without_a_way_out() {
    let upstream = Upstream::start().await;
    upstream.set_default_reply(Reply::json(200, "{}").header("date", "Sun, 06 Nov 1994 08:49:37 GMT"));
    let skewed = reached(&upstream.url(), None).await;
    assert!(skewed.code == Some(0) && skewed.stdout.contains("openai says 1994-11-06"), "{skewed:?}");
    let closed = reached("http://127.0.0.1:9", None).await;
    assert!(closed.code == Some(0) && closed.stdout.contains("127.0.0.1:9 cannot be reached"), "{closed:?}");
    assert!(closed.stdout.contains("--offline"), "{closed:?}");
}

#[test]
fn doctor_says_which_file_the_settings_are_in() {
    let here = tempfile::tempdir().unwrap();
    let doctor = |arguments: &[&str]| {
        let done = gateway(here.path(), &[&["doctor", "--offline", "--json"], arguments].concat(), &[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        finding(&done, "settings").1
    };
    assert!(doctor(&[]).contains("there is no file"));
    std::fs::write(here.path().join("other.toml"), "").unwrap();
    assert!(doctor(&["--config", "other.toml"]).ends_with("they are in other.toml"));
    std::fs::write(here.path().join("gateway.toml"), "").unwrap();
    assert!(doctor(&[]).contains("they are in ./gateway.toml, which was found"));
}
