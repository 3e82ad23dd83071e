//! Golden plans of LiteLLM's configurations, in `fixtures/import/plans`: what is created of each file, and every finding.
//! To regenerate them, run the tests with `REGENERATE_GOLDEN=1` and review the diff.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

/// The cases that the importers of other gateways are tested with, and those that are hard here.
const CASES: [&str; 12] = [
    "centralized-credentials",
    "cooldown",
    "credential-conflicts",
    "database-settings",
    "environment-references",
    "incompatible-routing",
    "load-balancing-fallbacks",
    "names-of-others",
    "single-model-fallback",
    "unmapped-fields",
    "unsupported-provider",
    "wildcard-model",
];

#[test]
fn plans_are_as_recorded() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting")]
    let regenerate = std::env::var_os("REGENERATE_GOLDEN").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/import/plans");
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let names: BTreeSet<String> =
        sources.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(names.iter().map(String::as_str).eq(CASES), "{names:?}");
    for name in CASES {
        let text = fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        let env = |name: &str| match name {
            "BASE_URL" => Some("https://base.example/v1".to_owned()),
            name => environment(name),
        };
        let import = plan(Source::Litellm, &text, &env).unwrap();
        assert_all_named(&import, &Value::Object(parse::yaml(&text).unwrap()));
        let shown = json!({"plan": import.plan, "findings": import.findings});
        let shown = serde_json::to_string_pretty(&shown).unwrap() + "\n";
        for secret in ["value-of-", "sk-in-the-file", "sk-master", "litellm:secret"] {
            assert!(!shown.contains(secret), "{name} shows {secret}");
        }
        let path = folder.join(format!("{name}.json"));
        if regenerate {
            fs::write(&path, shown).unwrap();
        } else {
            assert_eq!(fs::read_to_string(&path).unwrap_or_default(), shown, "{name}");
        }
    }
}
