//! Golden files, made by hand from the pages of OCSF 1.9.0 and ECS, and the rules that hold for every event.

use super::*;
use crate::audit::routes::ROUTES;
use crate::audit::{Actor, ActorType, Change, Target, Via};
use crate::time::Timestamp;

const ORG: &str = "0192f0c1-2345-7abc-8def-0123456789ab";

fn entry(action: &str) -> Entry {
    Entry {
        id: "0192f0c1-0000-7abc-8def-000000000001".parse().unwrap(),
        seq: 7,
        at: Timestamp(1_794_804_000_123),
        actor: Actor {
            kind: ActorType::User,
            id: Some("u1".into()),
            name: Some("ada@example.com".into()),
            via: Via::Console,
        },
        action: action.into(),
        target: Target { kind: "key".into(), id: Some("k1".into()), name: Some("=ci \"x\"]\\".into()) },
        outcome: Outcome::Success,
        status: Some(201),
        changes: Some(vec![Change { path: "/name".into(), from: Value::Null, to: json!("ci") }]),
        reason: None,
        request_id: Some("req-1".into()),
        ip: Some("192.0.2.7".into()),
        user_agent: Some("curl\n8".into()),
        node: 1,
        prev_hash: "00ff".into(),
    }
}

fn exported(entry: &Entry) -> Exported<'_> {
    Exported { org_id: ORG, entry, hash: "ff00" }
}

fn golden(name: &str) -> String {
    let path = format!("{}/fixtures/audit/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_format_matches_its_golden_file() {
    let created = entry("key.create");
    let of = exported(&created);
    let json = |name: &str| serde_json::from_str::<Value>(&golden(name)).unwrap();
    assert_eq!(of.ocsf(), json("ocsf.json"));
    assert_eq!(of.ecs(), json("ecs.json"));
    assert_eq!(of.syslog(), golden("syslog.txt").trim_end());
    assert_eq!(String::from_utf8([csv_header(), of.csv()].concat()).unwrap(), golden("entries.csv"));
}

#[test]
fn no_cell_is_a_formula_and_a_csv_parser_reads_the_others_back() {
    for (name, cell) in [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@sum", "'@sum"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("a \"b\", c\nd\r\ne", "a \"b\", c\nd\r\ne"),
        ("'quoted'", "'quoted'"),
        ("\u{20ac}", "\u{20ac}"),
    ] {
        let mut named = entry("key.create");
        named.target.name = Some(name.into());
        let text = [csv_header(), exported(&named).csv()].concat();
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let rows: Vec<std::collections::HashMap<String, String>> =
            reader.deserialize().collect::<Result<_, _>>().unwrap();
        assert_eq!((rows.len(), rows[0]["target_name"].as_str()), (1, cell));
    }
}

#[test]
fn every_action_is_a_valid_ocsf_event() {
    let others = [
        "auth.login_failed",
        "access.read",
        "log.read_bodies",
        "audit.suppressed",
        "scope_denied",
        "node.start",
    ];
    for action in ROUTES.iter().map(|route| route.action).chain(others) {
        let entry = entry(action);
        let event = exported(&entry).ocsf();
        let number = |name: &str| event[name].as_u64().unwrap();
        assert_eq!(number("type_uid"), number("class_uid") * 100 + number("activity_id"), "{action}");
        assert_eq!(number("category_uid"), number("class_uid") / 1000);
        for path in [
            "/metadata/version",
            "/metadata/product/name",
            "/metadata/uid",
            "/metadata/event_code",
            "/metadata/tenant_uid",
            "/time",
            "/severity_id",
            "/actor/user/uid",
        ] {
            assert!(event.pointer(path).is_some_and(|value| !value.is_null()), "{action} {path}");
        }
        let required = match number("class_uid") {
            3002 => "/user",
            3004 => "/entity",
            3005 => "/privileges",
            3006 => "/group",
            6003 => "/api/operation",
            other => panic!("{action} has the class {other}"),
        };
        assert!(event.pointer(required).is_some(), "{action} {required}");
    }
}

#[test]
fn a_refused_entry_is_a_failure_in_every_format() {
    let mut refused = entry("key.create");
    (refused.outcome, refused.reason) = (Outcome::Denied, Some("no\nrights".into()));
    let of = exported(&refused);
    assert_eq!((&of.ocsf()["status_id"], &of.ocsf()["severity_id"]), (&json!(2), &json!(2)));
    assert_eq!(
        (&of.ecs()["event"]["outcome"], &of.ecs()["event"]["type"]),
        (&json!("failure"), &json!(["denied"]))
    );
    let line = of.syslog();
    assert!(line.starts_with("<108>1 ") && line.ends_with("] key.create no rights") && !line.contains('\n'));
}
