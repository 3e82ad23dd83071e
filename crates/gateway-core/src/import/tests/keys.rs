//! LiteLLM's keys.

use super::*;

#[test]
fn keys_keep_their_hash_scopes_and_budget() {
    for text in [LITELLM_KEYS, LITELLM_DUMP] {
        let import = imported(Source::LitellmKeys, text);
        let keys = &import.plan.keys;
        let names: Vec<_> = keys.iter().map(|key| (key.name.as_str(), key.scopes.join(" "))).collect();
        assert_eq!(
            names,
            [
                ("ci", "model:gpt-4o model:anthropic/*".to_owned()),
                ("everything", "proxy".to_owned()),
                ("old one", "proxy".to_owned()),
            ]
        );
        assert_eq!(keys[0].hash.to_hex(), "a".repeat(64));
        assert_eq!(keys[0].key_prefix, "sk-...Ab1c");
        assert_eq!(keys[2].expires_at, "2026-01-31T00:00:00Z".parse().ok());
        assert_eq!(keys.iter().map(|key| key.revoked).collect::<Vec<_>>(), [false, false, true]);
        let budget = PlannedBudget {
            key: 0,
            period: Period::Monthly,
            soft_limit_usd: None,
            hard_limit_usd: Some(25.0),
            opening_usd: Some(3.5),
            opening_until: None,
        };
        assert_eq!(import.plan.budgets, [budget]);
        let (scope, name) = (LimitScope::Key, "ci".to_owned());
        let limit = PlannedLimit { scope, name, requests: Some(60), tokens: None, concurrent: None };
        assert_eq!(import.plan.limits, [limit]);
        assert_eq!(finding(&import, "keys[*].rpm_limit").status, Status::Manual);
        assert_eq!(finding(&import, "keys[3].models").status, Status::Manual);
        assert_eq!(finding(&import, "keys[4].token").status, Status::Unsupported);
    }
}

#[test]
fn spending_counts_until_the_source_resets_it() {
    let row = |reset: &str| json!([{"token": "a".repeat(64), "spend": 2, "max_budget": 5, "budget_duration": "1d", "budget_reset_at": reset}]);
    let opening = |reset: &str| {
        let now = "2026-11-16T12:00:00Z".parse().unwrap();
        imported(Source::LitellmKeys, &row(reset).to_string()).plan.budgets[0].opening_at(now)
    };
    assert_eq!(opening("2026-11-17 00:00:00"), Some(2.0));
    assert_eq!(opening("2026-11-16T11:00:00Z"), None);
    assert_eq!(opening(""), Some(2.0));
}

#[test]
fn a_team_limits_its_keys() {
    let text = json!({
        "keys": [
            {"token": "a".repeat(64), "team_id": "t", "models": ["all-team-models"]},
            {"token": "b".repeat(64), "team_id": "t", "models": []},
            {"token": "c".repeat(64), "team_id": "u", "models": []},
        ],
        "teams": [{"team_id": "t", "models": ["gpt-4o"], "max_budget": 5}],
        "total_count": 3,
    });
    let import = imported(Source::LitellmKeys, &text.to_string());
    let scopes: Vec<_> = import.plan.keys.iter().map(|key| key.scopes.join(" ")).collect();
    assert_eq!(scopes, ["model:gpt-4o", "model:gpt-4o", "proxy"]);
    assert_eq!(finding(&import, "keys[2].models").status, Status::Approximate);
    assert_eq!(finding(&import, "teams[*].max_budget").status, Status::Manual);
    assert_eq!(finding(&import, "total_count").status, Status::Unsupported);
}
