//! LiteLLM's keys.

use super::*;

/// Name, keys and numbers of a limit.
fn limit(planned: &PlannedLimit) -> (&str, Vec<usize>, Value) {
    let mut fields = serde_json::to_value(&planned.definition).unwrap();
    for name in ["name", "scope", "per", "window", "count_cached", "missing", "mode", "enabled"] {
        fields.as_object_mut().unwrap().remove(name);
    }
    (&planned.definition.name, planned.keys.clone(), fields)
}

#[test]
fn limits_of_keys_and_teams_are_shared_by_their_keys() {
    let by_model = json!({"model_tpm_limit": {"gpt-4o": 900}, "model_rpm_limit": {"gpt-4o": 9, "o3": 0}});
    let text = json!({
        "keys": [
            {"token": "a".repeat(64), "key_alias": "one", "team_id": "t", "tpm_limit": 1000, "max_parallel_requests": 3},
            {"token": "b".repeat(64), "key_alias": "two", "team_id": "t", "metadata": by_model.to_string()},
            {"token": "c".repeat(64), "key_alias": "three", "rpm_limit": 0},
        ],
        "teams": [
            {"team_id": "t", "team_alias": "Search", "rpm_limit": 60},
            {"team_id": "u", "rpm_limit": 60},
        ],
    });
    let import = imported(Source::LitellmKeys, &text.to_string());
    let limits: Vec<_> = import.plan.limits.iter().map(limit).collect();
    assert_eq!(
        limits,
        [
            ("key-one", vec![0], json!({"tokens": 1000, "concurrent": 3})),
            ("key-two-gpt-4o", vec![1], json!({"requests": 9, "tokens": 900, "models": ["gpt-4o"]})),
            ("team-search", vec![0, 1], json!({"requests": 60})),
        ]
    );
    assert_eq!(finding(&import, "teams[*].rpm_limit").status, Status::Approximate);
    assert_eq!(finding(&import, "teams[1]").status, Status::Manual);
}

/// What `token_rate_limit_type` says holds for all keys and teams.
#[test]
fn limits_count_the_tokens_that_the_settings_name() {
    let by_model = json!({"model_tpm_limit": {"gpt-4o": 900}});
    let limits = |settings: Value| {
        let text = json!({
            "keys": [{"token": "a".repeat(64), "key_alias": "one", "team_id": "t", "tpm_limit": 1000,
                "metadata": by_model.to_string()}],
            "teams": [{"team_id": "t", "tpm_limit": 5000, "rpm_limit": 60}],
            "general_settings": settings,
        });
        let import = imported(Source::LitellmKeys, &text.to_string());
        let limits: Vec<Value> = import.plan.limits.iter().map(|planned| limit(planned).2).collect();
        (limits, import)
    };
    for (given, counted) in [("input", "input_tokens"), ("output", "output_tokens"), ("total", "tokens")] {
        let (found, import) = limits(json!({"token_rate_limit_type": given, "master_key": "sk-1"}));
        assert_eq!(
            found,
            [
                json!({counted: 1000}),
                json!({counted: 900, "models": ["gpt-4o"]}),
                json!({counted: 5000, "requests": 60})
            ]
        );
        let finding_of = |name: &str| finding(&import, &format!("general_settings.{name}")).status;
        assert_eq!(finding_of("token_rate_limit_type"), Status::Exact);
        assert_eq!(finding_of("master_key"), Status::Manual);
        assert_eq!(finding(&import, "keys[*].tpm_limit").status, Status::Approximate);
    }
    let (found, import) = limits(json!({"token_rate_limit_type": "words"}));
    assert_eq!(found[0], json!({"tokens": 1000}));
    assert_eq!(finding(&import, "general_settings.token_rate_limit_type").status, Status::Unsupported);
    let (found, import) = limits(json!("none"));
    assert_eq!(found[0], json!({"tokens": 1000}));
    assert_eq!(finding(&import, "general_settings").status, Status::Unsupported);
}

#[test]
fn a_dump_has_the_settings_in_its_table_of_sections() {
    let head = "COPY public.\"LiteLLM_Config\" (param_name, param_value) FROM stdin;\n";
    let rows = "router_settings\t{}\ngeneral_settings\t{\"token_rate_limit_type\": \"output\"}\n\\.\n";
    let keys = "INSERT INTO \"LiteLLM_VerificationToken\" (token, key_alias, tpm_limit) VALUES ";
    let text = format!("{head}{rows}{keys}('{}', 'one', 1000);\n", "a".repeat(64));
    let import = imported(Source::LitellmKeys, &text);
    let limits: Vec<_> = import.plan.limits.iter().map(limit).collect();
    assert_eq!(limits, [("key-one", vec![0], json!({"output_tokens": 1000}))]);
    assert_eq!(finding(&import, "general_settings.token_rate_limit_type").status, Status::Exact);
}

#[test]
fn customers_become_budgets_of_users() {
    let text = json!({
        "keys": [{"token": "a".repeat(64)}],
        "customers": [
            {"user_id": "ann", "budget_id": "b1"},
            {"user_id": "bob", "litellm_budget_table": {"max_budget": 2.5, "soft_budget": 1, "budget_duration": "1d"}},
            {"user_id": "cat", "budget_id": "b2"},
            {"user_id": "dan", "blocked": true},
            {"user_id": "*", "budget_id": "b1"},
            {"user_id": "ann", "budget_id": "b1"},
        ],
        "budgets": [
            {"budget_id": "b1", "max_budget": 10, "budget_duration": "30d", "rpm_limit": 5},
            {"budget_id": "b2", "max_budget": 10},
        ],
    });
    let import = imported(Source::LitellmKeys, &text.to_string());
    let budget = |user: &str, period, soft, hard| PlannedUserBudget {
        user: user.to_owned(),
        period,
        soft_limit_usd: soft,
        hard_limit_usd: Some(hard),
    };
    assert_eq!(
        import.plan.user_budgets,
        [budget("ann", Period::Monthly, None, 10.0), budget("bob", Period::Daily, Some(1.0), 2.5)]
    );
    assert_eq!(finding(&import, "customers[2].budget_duration").status, Status::Manual);
    assert_eq!(finding(&import, "customers[*].blocked").status, Status::Manual);
    assert_eq!(finding(&import, "customers[4]").status, Status::Unsupported);
    assert_eq!(finding(&import, "budgets[*].rpm_limit").status, Status::Manual);
}

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
        let limits: Vec<_> = import.plan.limits.iter().map(limit).collect();
        assert_eq!(limits, [("key-ci", vec![0], json!({"requests": 60}))]);
        assert_eq!(finding(&import, "keys[*].rpm_limit").status, Status::Approximate);
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
