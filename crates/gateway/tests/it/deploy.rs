//! The files in `deploy/` are valid and name only existing settings.

use std::path::{Path, PathBuf};

use gateway::config::{SETTINGS, env_name};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn documents(name: &str) -> Vec<Value> {
    text(name).split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

#[test]
fn every_setting_named_there_exists() {
    let mut known: Vec<String> = SETTINGS.iter().map(|setting| env_name(setting.key)).collect();
    // The file with settings is not one of them, and a variable of Kubernetes is named as what it is not.
    known.extend(["GATEWAY_CONFIG", "GATEWAY_PORT"].map(ToOwned::to_owned));
    let mut named = 0;
    for file in std::fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        for word in words.filter(|word| word.starts_with("GATEWAY_")) {
            named += 1;
            assert!(known.iter().any(|name| name == word), "{}: {word}", path.display());
        }
    }
    assert!(named > 20, "{named}");
}

#[test]
fn the_compose_file_has_three_nodes_with_a_spool_each_behind_the_balancer() {
    let compose = documents("compose.yaml").remove(0);
    let services = compose["services"].as_object().unwrap();
    let nodes: Vec<&String> = services.keys().filter(|name| name.starts_with("gateway-")).collect();
    assert_eq!(nodes.len(), 3);
    let balancer = text("nginx.conf");
    let mut spools = std::collections::BTreeSet::new();
    for node in nodes {
        assert!(balancer.contains(&format!("server {node}:8080")), "{node}");
        spools.insert(services[node]["volumes"][0].as_str().unwrap().to_owned());
    }
    assert_eq!(spools.len(), 3, "a data directory belongs to one process: {spools:?}");
    for service in ["balancer", "postgres", "redis"] {
        assert!(services.contains_key(service), "{service}");
    }
}

#[test]
fn the_kubernetes_manifests_have_probes_that_exist_and_a_disruption_budget() {
    let documents = documents("kubernetes.yaml");
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let pod = &of_kind("StatefulSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for (probe, path) in
        [("livenessProbe", "/livez"), ("readinessProbe", "/readyz"), ("startupProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"]["path"], path);
    }
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(of_kind("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
}

#[test]
fn the_kubernetes_manifests_keep_secrets_in_a_file_and_close_the_network() {
    let documents = documents("kubernetes.yaml");
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let pod = &of_kind("StatefulSet")["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["automountServiceAccountToken"], &pod["enableServiceLinks"]),
        (&false.into(), &false.into())
    );
    let container = &pod["containers"][0];
    assert!(container["envFrom"].is_null(), "secrets are not variables");
    let variables = container["env"].as_array().unwrap();
    let value =
        |name: &str| variables.iter().find(|variable| variable["name"] == name).unwrap()["value"].clone();
    assert_eq!(value("GATEWAY_CONFIG"), "/etc/gateway/gateway.toml");
    assert_eq!((value("GATEWAY_EGRESS_PRIVATE"), value("GATEWAY_SIGNUP")), ("deny".into(), "invite".into()));
    assert!(!container["image"].as_str().unwrap().ends_with(":latest"));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let policy = &of_kind("NetworkPolicy")["spec"];
    assert_eq!(policy["policyTypes"], serde_json::json!(["Ingress", "Egress"]));
    assert_eq!(
        policy["podSelector"]["matchLabels"],
        of_kind("StatefulSet")["spec"]["selector"]["matchLabels"]
    );
    for rule in policy["ingress"].as_array().unwrap() {
        assert!(!rule["from"].as_array().unwrap().is_empty(), "open to all: {rule}");
    }
    let public = policy["egress"].as_array().unwrap().last().unwrap();
    assert!(public["to"][0]["ipBlock"]["except"].as_array().unwrap().contains(&"169.254.0.0/16".into()));
}

#[test]
fn the_compose_file_keeps_secrets_in_files_and_listens_on_loopback() {
    let compose = documents("compose.yaml").remove(0);
    for (name, service) in compose["services"].as_object().unwrap() {
        for (variable, value) in service["environment"].as_object().into_iter().flatten() {
            let is_secret = ["SECRET", "PASSWORD", "KEY"].iter().any(|word| variable.contains(word));
            assert!(!is_secret || variable.ends_with("_FILE"), "{name}: {variable} = {value}");
        }
        for port in service["ports"].as_array().into_iter().flatten() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name}: {port}");
        }
    }
}

/// 0 is safest, 10 is a service without any restriction.
#[test]
fn the_unit_is_hardened() {
    let analyze = |arguments: &[&str]| std::process::Command::new("systemd-analyze").args(arguments).output();
    let can_rate =
        analyze(&["--help"]).is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--offline"));
    if !can_rate {
        eprintln!("systemd-analyze cannot rate units here: deploy/gateway.service is not rated");
        return;
    }
    let unit = folder().join("gateway.service").display().to_string();
    let rated = analyze(&["security", "--offline=true", "--no-pager", "--threshold=25", &unit]).unwrap();
    assert!(rated.status.success(), "{}", String::from_utf8_lossy(&rated.stdout));
}
