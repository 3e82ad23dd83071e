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
    let known: Vec<String> = SETTINGS.iter().map(|setting| env_name(setting.key)).collect();
    let mut named = 0;
    for file in std::fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
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
