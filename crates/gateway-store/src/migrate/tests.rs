//! Sections for one database, and the checksums of released migrations.

use super::*;

#[test]
fn a_section_for_the_other_database_is_left_out() {
    let sql = "A;\n-- only postgres\nB;\n-- end\n-- only sqlite\nC;\n-- end\nD;";
    assert_eq!(for_dialect(sql, Dialect::Sqlite), "A;\nC;\nD;\n");
    assert_eq!(for_dialect(sql, Dialect::Postgres), "A;\nB;\nD;\n");
}

/// Append the checksum of a new file here. A checksum that is already listed must never change.
#[test]
fn released_migrations_are_unchanged() {
    let released = |part: Part| -> Vec<(&str, String)> {
        part.migrations().iter().map(|(name, sql)| (*name, checksum(sql))).collect()
    };
    let expected = |list: &[(&'static str, &str)]| -> Vec<(&str, String)> {
        list.iter().map(|(name, checksum)| (*name, (*checksum).to_owned())).collect()
    };
    assert_eq!(released(Part::State), expected(&RELEASED_STATE));
    assert_eq!(released(Part::Logs), expected(&RELEASED_LOGS));
}

const RELEASED_STATE: [(&str, &str); 40] = [
    ("accounts", "f65992bc35341ed6407bb1d3f637403e1737c5a4ca04e81909ced7c5f4354712"),
    ("api_keys", "87ff93b27c32ccfa71a068d6f99b795aa9177331be1295d2c3013e37cd80cb5e"),
    ("prompts", "1e5c6ce1e2bfb6c6647dba5734ea7ea1c88fb60e796f384c4262b201a57ac2e4"),
    ("datasets", "78cad449e3327d6482312fe2309123f1c561f752defec2206c1a02e1439f16b2"),
    ("jobs", "8a01b880c8612bf28a1e5591ef7d06943c754d8de6ce972740f676bf2efa5b55"),
    ("evals", "4c359abd66f65aa72b8129b76ec17e59027cab2d7848cfef41b76c019bc3fd86"),
    ("playground", "4a755c7d596d9886e487ede4d4bde795860249f28685c3c0cd2701a62bc00f26"),
    ("skills", "954ca71ee69c5a40364988ed2c3cb453fe302c54f9a6ff413379951037f8bb2a"),
    ("webhooks", "d39f7e6edccbe7fefa242891478f8c281d2e490f6b49121828c6fe48357c9ee9"),
    ("budgets", "8dba915cce946838c6b58ff1bddd09234198d7137bf24203330b2c117431709f"),
    ("nodes", "5d018ef85e38f16b19d23ab3bf8a98394ec8c39d8859585b2a776a04102a2452"),
    ("eval_retention", "1b46e4d7aa27958ddbbc9d350024932b4c23d48fc1eb98a4cc7fcb84de5438c6"),
    ("deletions", "573ecba7f203043dd7b0ecc1f7bd7f4634faa3c54a26183e874984a14e9df856"),
    ("revisions_and_limits", "54c28b1b2a867965d9713061249a9581ec5bdcebcac11299c4b653d0bf586ca1"),
    ("cache_purges", "287de40c8e260413a6fda86aadf32182cb36be54cf5f103524f3fa18629830ea"),
    ("skill_vectors", "7bfcbad1d74c15577b53c0fe0e69dc30afa15c90c73e2d402514018d7b89ca43"),
    ("jobs_by_org", "7bfec4c8ae15f947ae8a3ba95273c4b2dfbbe5e59665dcfd9941912f23a70be7"),
    ("invites", "3162f1009d20ce8a89035ace7067fd25ae93d644ce3cf7df0af7772b7cf71ea1"),
    ("user_sessions", "d6b29bffe35b436634321f9978582b33ff2fe87e66a0da00c292df7731d035b9"),
    ("unpriced", "8bb0ea3eab5fcb4caa07ee4055a43675375a85db1a75b791c8e5815e045e5289"),
    ("audit", "d760293bf4719ba21ab48f97e9acac5e91cac4b9141b7e4659f8b6b9318f60a6"),
    ("audit_checkpoints", "adb5b1c3c80ae622f0bc4e2ed1056ed5745de0a428c68043d43b8d7470b1884f"),
    ("dataset_publishing", "dd8804208dced3e4178124ee656f28d26898f3724f9185f40a932816a2cfa6c4"),
    ("models", "539e4af487fce9d1730553b380800274ca5884495b2e303556e2df9dbc263f1a"),
    ("imports", "0954ea8c4e8d074e6aa851fd843cad31ac7184f92c766718bd57d9d46feb9bee"),
    ("prompt_cache_pauses", "5e2a2437688d50ad39cd0fb6472285aeef7207b267134db919cb763f6703b446"),
    ("budget_openings", "5f3b3ab47ec32c4561a050e94e45e2d006486aa32aae76180858cd6f81596c4f"),
    ("provider_retention", "f870ad574e55db31840872bcce4d40ce0302b4989d749e8e52ab6844f1bfb675"),
    ("limits", "12aebfd5a11e3ed78f425de21a9d4932c78d82e6a5765d82ac585a460f759f7b"),
    ("user_budgets", "4eca245754c0ae829bd5a38a2c0cc465ff36556ba4b3cf0178c6f4d7f15a097d"),
    ("alerts", "0fec9f700218ef29de8c03a66c2c9443978ab5445cdcadc5fadb96e8f5b52f97"),
    ("skill_files", "95b5d809bb76563bfb87ffaef5101f2c90d935fc7b0ad3f2895c424d12ec1dba"),
    ("mcp", "0b6e4ad27dfa8925e050a5169d2465376cb7916b458aedfb7c91656033efe741"),
    ("prompt_labels", "be8e40f764355362b89ded550f3f276a132a9aa24548f7037c9126a659912764"),
    ("replays", "774b2438548221dd3552c28fa886f393943522c14c2feb7224d32fab18a1f529"),
    ("mcp_approved_tools", "9c6b8dea6cc01a8cec3c898a7816d12050efa56860770621c748bc863408d661"),
    ("alert_coverage", "20c907a0d686e8280fa171bb39d23409fbde482c3d16b82274ccd440a7c828b3"),
    ("playground_tool_calls", "66af9b4840d4bdf7e1935fc05736e2b872f2b1da7888c5b74badc9d5493548d9"),
    ("views", "ea721a13c9521f6e9d939cdd531e11c93cc92b6f953c2cd1657cd29676bc84bf"),
    ("key_indexes", "69c69b20e670dfd659bf543f1b27f6190fd964e0b9dcc0d8661619d7b8aa7e23"),
];
const RELEASED_LOGS: [(&str, &str); 15] = [
    ("logs", "d225a78f36dac53158eb6c38136c43c499e711d9c22f81cc03dfcff5fd786783"),
    ("prompts", "ceb2a15576540fb45b7b45d0441db3ebbf33d101b920851b2b3fa2648e0fff90"),
    ("exports", "60858f140c89df84659fab2e8f61d00eb2be42466c40f56c6d0f24c9a5c4cccd"),
    ("outside", "f6f8ea94679db53d9c95f65bb0cd6b55c1276033eced5253a1e05bc7bcdc768d"),
    ("deleted_orgs", "91847c74116cd455a3e4e49254c6a5f19bc8da4e0fb7d079c383d06ccdcc3fd8"),
    ("closed_days", "d813a0ad04b6fe1a97e55fb01b7853a693a0b2b5719efc8ec2811173c5580db6"),
    ("log_days", "014296140a51a1f52f55e8a8cb7d08e0196b863b5f80f817376ef196e1db5614"),
    ("compat", "30dfcc6e01d439a1116b5b08652b8fd7192d1de2c8e13dc6171e134988f39d13"),
    ("prompt_cache", "543260b66b493427db0183d929f3c5ac100b35f8dcb129494d712bee82ea1367"),
    ("word_runs", "4c3ade0267c9cac57eff30b464300793399c7bfbc07c1fbad203801ed3076e0a"),
    ("limits", "84903852785fdc9c76df3f82ee823ff0fd431b03e399496152b812d927fe2394"),
    ("user_spend", "ec90192776b742f4dc006a5ea1744f5504f62621a10013f155eaeb7bd02223f1"),
    ("mcp", "7bdcc61d189eb2cf2943c38066a2dd15a790f08b9a7f17557400bd46127c5734"),
    ("body_blocks", "17e951dad55d8590143c98c5ad1b25e96cb8d46c9c27e881fc2dee15de78966f"),
    ("export_queries", "f223871213588f795df808aa5a463fb3d0bf9afea34f1f7bfe8b3f1979c04a16"),
];

#[test]
fn an_edited_migration_is_rejected() {
    let mut recorded = Checksums::new();
    check_checksums(Part::Logs, &recorded).unwrap();
    recorded.insert(1, checksum(LOGS[0].1));
    check_checksums(Part::Logs, &recorded).unwrap();
    recorded.insert(2, checksum("something else"));
    let error = check_checksums(Part::Logs, &recorded).unwrap_err().to_string();
    assert!(error.contains("migration 2 (prompts) was edited"), "{error}");
}
