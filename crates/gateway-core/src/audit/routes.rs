//! Which action each route of the API is recorded as. Every route that changes something has a line here, or a line that
//! says why it needs no entry.

/// How a route is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method in lower case and the path below `/api/v1`.
    pub route: &'static str,
    /// The status of success.
    pub status: u16,
    pub action: &'static str,
    /// The type of the target.
    pub target: &'static str,
    /// The target's id, in terms of the path's parameters; empty if the handler names it.
    pub id: &'static str,
}

const fn record(
    route: &'static str,
    status: u16,
    action: &'static str,
    target: &'static str,
    id: &'static str,
) -> Route {
    Route { route, status, action, target, id }
}

/// The recorded routes.
pub const ROUTES: &[Route] = &[
    record("post /signup", 201, "org.create", "org", ""),
    record("post /login", 200, "auth.login", "user", ""),
    record("post /setup", 201, "org.create", "org", ""),
    record("post /auth/switch-org", 200, "auth.switch_org", "org", ""),
    record("post /auth/logout", 200, "auth.logout", "user", ""),
    record("post /auth/logout-all", 200, "auth.logout_all", "user", ""),
    record("delete /auth/sessions/{userSessionId}", 200, "auth.end_session", "session", "{userSessionId}"),
    record("post /auth/password", 200, "auth.password", "user", ""),
    record("post /auth/reset", 200, "auth.reset", "user", ""),
    record("post /auth/accept-invite", 200, "member.add", "member", ""),
    record("post /keys", 201, "key.create", "key", ""),
    record("put /keys/{keyId}", 200, "key.update", "key", "{keyId}"),
    record("delete /keys/{keyId}", 200, "key.revoke", "key", "{keyId}"),
    record("post /keys/{keyId}/rotate", 201, "key.rotate", "key", "{keyId}"),
    record("post /orgs", 201, "org.create", "org", ""),
    record("put /orgs/{orgId}", 200, "org.update", "org", "{orgId}"),
    record("delete /orgs/{orgId}", 200, "org.delete", "org", "{orgId}"),
    record("post /orgs/{orgId}/audit/verify", 200, "audit.verify", "audit", "{orgId}"),
    record("post /orgs/{orgId}/members", 201, "member.invite", "invite", ""),
    record("delete /orgs/{orgId}/invites/{inviteId}", 200, "member.withdraw_invite", "invite", "{inviteId}"),
    record("put /orgs/{orgId}/members/{userId}", 200, "member.role", "member", "{userId}"),
    record("delete /orgs/{orgId}/members/{userId}", 200, "member.remove", "member", "{userId}"),
    record("post /orgs/{orgId}/teams", 201, "team.create", "team", ""),
    record("put /orgs/{orgId}/teams/{teamId}", 200, "team.update", "team", "{teamId}"),
    record("delete /orgs/{orgId}/teams/{teamId}", 200, "team.delete", "team", "{teamId}"),
    record("post /orgs/{orgId}/apps", 201, "app.create", "app", ""),
    record("put /orgs/{orgId}/apps/{appId}", 200, "app.update", "app", "{appId}"),
    record("delete /orgs/{orgId}/apps/{appId}", 200, "app.delete", "app", "{appId}"),
    record("post /orgs/{orgId}/import", 200, "org.import", "org", "{orgId}"),
    record("post /orgs/{orgId}/budgets", 201, "budget.create", "budget", ""),
    record("put /orgs/{orgId}/budgets/{budgetId}", 200, "budget.update", "budget", "{budgetId}"),
    record("delete /orgs/{orgId}/budgets/{budgetId}", 200, "budget.delete", "budget", "{budgetId}"),
    record("post /orgs/{orgId}/mcp-servers", 201, "mcp_server.create", "mcp_server", ""),
    record("put /orgs/{orgId}/mcp-servers/{name}", 200, "mcp_server.update", "mcp_server", "{name}"),
    record("delete /orgs/{orgId}/mcp-servers/{name}", 200, "mcp_server.delete", "mcp_server", "{name}"),
    record("post /orgs/{orgId}/mcp-servers/{name}/test", 200, "mcp_server.test", "mcp_server", "{name}"),
    record(
        "post /orgs/{orgId}/mcp-servers/{name}/refresh",
        200,
        "mcp_server.refresh",
        "mcp_server",
        "{name}",
    ),
    record(
        "post /orgs/{orgId}/mcp-servers/{name}/tools/{tool}/approve",
        200,
        "mcp_server.approve_tool",
        "mcp_server",
        "{name}",
    ),
    record("put /mcp-connections/{server}", 200, "mcp_connection.update", "mcp_connection", "{server}"),
    record("delete /mcp-connections/{server}", 200, "mcp_connection.delete", "mcp_connection", "{server}"),
    record("post /orgs/{orgId}/limits", 201, "limit.create", "limit", ""),
    record("put /orgs/{orgId}/limits/{limitId}", 200, "limit.update", "limit", "{limitId}"),
    record("delete /orgs/{orgId}/limits/{limitId}", 200, "limit.delete", "limit", "{limitId}"),
    record("post /orgs/{orgId}/alerts", 201, "alert.create", "alert", ""),
    record("put /orgs/{orgId}/alerts/{alertId}", 200, "alert.update", "alert", "{alertId}"),
    record("delete /orgs/{orgId}/alerts/{alertId}", 200, "alert.delete", "alert", "{alertId}"),
    record("post /orgs/{orgId}/alerts/{alertId}/mute", 200, "alert.mute", "alert", "{alertId}"),
    record("post /orgs/{orgId}/alerts/{alertId}/test", 200, "alert.test", "alert", "{alertId}"),
    record("post /orgs/{orgId}/views", 201, "view.create", "view", ""),
    record("patch /orgs/{orgId}/views/{viewId}", 200, "view.update", "view", "{viewId}"),
    record("delete /orgs/{orgId}/views/{viewId}", 200, "view.delete", "view", "{viewId}"),
    record("post /orgs/{orgId}/providers", 201, "provider.create", "provider", ""),
    record("put /orgs/{orgId}/providers/{name}", 200, "provider.update", "provider", "{name}"),
    record("delete /orgs/{orgId}/providers/{name}", 200, "provider.delete", "provider", "{name}"),
    record("post /orgs/{orgId}/providers/{name}/test", 200, "provider.test", "provider", "{name}"),
    record("post /orgs/{orgId}/models", 201, "model.create", "model", ""),
    record("put /orgs/{orgId}/models/{model}", 200, "model.update", "model", "{model}"),
    record("delete /orgs/{orgId}/models/{model}", 200, "model.delete", "model", "{model}"),
    record("post /prompts", 201, "prompt.create", "prompt", ""),
    record("put /prompts/{namespace}/{slug}", 200, "prompt.update", "prompt", "{namespace}/{slug}"),
    record("delete /prompts/{namespace}/{slug}", 200, "prompt.delete", "prompt", "{namespace}/{slug}"),
    record(
        "put /prompts/{namespace}/{slug}/labels/{label}",
        200,
        "prompt.label",
        "prompt",
        "{namespace}/{slug}",
    ),
    record(
        "delete /prompts/{namespace}/{slug}/labels/{label}",
        200,
        "prompt.unlabel",
        "prompt",
        "{namespace}/{slug}",
    ),
    record("post /playground/save-version", 200, "prompt.update", "prompt", ""),
    record("post /datasets", 201, "dataset.create", "dataset", ""),
    record("put /datasets/{datasetId}", 200, "dataset.update", "dataset", "{datasetId}"),
    record("delete /datasets/{datasetId}", 200, "dataset.delete", "dataset", "{datasetId}"),
    record("post /datasets/{datasetId}/versions", 201, "dataset.freeze", "dataset", "{datasetId}"),
    record("post /datasets/{datasetId}/cases", 201, "dataset.add_cases", "dataset", "{datasetId}"),
    record("put /datasets/{datasetId}/cases/{caseId}", 200, "dataset.update_case", "dataset", "{datasetId}"),
    record(
        "delete /datasets/{datasetId}/cases/{caseId}",
        200,
        "dataset.remove_case",
        "dataset",
        "{datasetId}",
    ),
    record("post /datasets/{datasetId}/from-logs", 201, "dataset.add_cases", "dataset", "{datasetId}"),
    record("post /datasets/{datasetId}/import", 200, "dataset.import", "dataset", "{datasetId}"),
    record("post /datasets/{datasetId}/eval", 202, "eval.run", "eval", ""),
    record("post /evals", 201, "eval.create", "eval", ""),
    record("put /evals/{evalId}", 200, "eval.update", "eval", "{evalId}"),
    record("delete /evals/{evalId}", 200, "eval.delete", "eval", "{evalId}"),
    record("post /evals/{evalId}/run", 202, "eval.run", "eval", "{evalId}"),
    record("delete /evals/runs/{runId}", 200, "eval.delete_run", "eval_run", "{runId}"),
    record("post /evals/runs/{runId}/cancel", 200, "eval.cancel", "eval_run", "{runId}"),
    record("post /replays", 202, "replay.start", "replay", ""),
    record("post /replays/{replayId}/cancel", 200, "replay.cancel", "replay", "{replayId}"),
    record("delete /replays/{replayId}", 200, "replay.delete", "replay", "{replayId}"),
    record("delete /cache", 200, "cache.purge", "cache", ""),
    record("put /skills/rubric/{rubricId}", 200, "rubric.update", "rubric", "{rubricId}"),
    record("post /skills", 201, "skill.create", "skill", ""),
    record("put /skills/{skillId}", 200, "skill.update", "skill", "{skillId}"),
    record("delete /skills/{skillId}", 200, "skill.delete", "skill", "{skillId}"),
    record("put /skills/{skillId}/files/{path}", 200, "skill.update", "skill", "{skillId}"),
    record("delete /skills/{skillId}/files/{path}", 200, "skill.update", "skill", "{skillId}"),
    record("post /skills/install-links", 201, "install_link.create", "install_link", ""),
    record(
        "delete /skills/install-links/{installLinkId}",
        200,
        "install_link.delete",
        "install_link",
        "{installLinkId}",
    ),
    record("post /skills/{skillId}/publish", 200, "skill.publish", "skill", "{skillId}"),
    record("post /skills/{skillId}/unpublish", 200, "skill.unpublish", "skill", "{skillId}"),
    record("post /skills/{skillId}/evaluate", 202, "skill.evaluate", "skill", "{skillId}"),
    record("post /skills/public/{skillId}/adopt", 201, "skill.adopt", "skill", "{skillId}"),
    record("post /eval-results", 201, "verdict.submit", "verdict", ""),
    record("post /exports", 201, "export.create", "export", ""),
    record("put /exports/{exportId}", 200, "export.update", "export", "{exportId}"),
    record("delete /exports/{exportId}", 200, "export.delete", "export", "{exportId}"),
    record("post /exports/{exportId}/test", 200, "export.test", "export", "{exportId}"),
    record("post /webhooks", 201, "webhook.create", "webhook", ""),
    record("put /webhooks/{webhookId}", 200, "webhook.update", "webhook", "{webhookId}"),
    record("delete /webhooks/{webhookId}", 200, "webhook.delete", "webhook", "{webhookId}"),
    record(
        "post /webhooks/{webhookId}/rotate-secret",
        201,
        "webhook.rotate_secret",
        "webhook",
        "{webhookId}",
    ),
    record("post /webhooks/{webhookId}/test", 202, "webhook.test", "webhook", "{webhookId}"),
    record("post /webhooks/{webhookId}/deliveries/retry", 202, "webhook.retry", "webhook", "{webhookId}"),
    record(
        "post /webhooks/{webhookId}/deliveries/{deliveryId}/retry",
        202,
        "webhook.retry",
        "webhook",
        "{webhookId}",
    ),
];

/// Routes with a method that changes something elsewhere, but not here, and why they need no entry.
pub const UNRECORDED: &[(&str, &str)] = &[
    ("post /prompts/{namespace}/{slug}/render", "reads a prompt"),
    ("post /datasets/{datasetId}/sample", "reads cases"),
    ("post /datasets/{datasetId}/eval/estimate", "reads cases and prices"),
    ("post /replays/estimate", "reads log rows and prices"),
    ("post /skills/install/{path}", "reads a git repository"),
    ("post /otel/v1/traces", "adds log rows"),
    ("post /playground/run", "a model call, which has a log row"),
    ("post /playground/compare", "model calls, which have log rows"),
];

/// The action of refused requests to routes that change nothing.
pub const READ: &str = "access.read";

/// How a route is recorded. `None` if it changes nothing.
pub fn find(method: &str, path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|known| {
        known
            .route
            .split_once(' ')
            .is_some_and(|(of, known)| known == path && of.eq_ignore_ascii_case(method))
    })
}

impl Route {
    /// The id of the target, from the parameters of the path.
    pub fn target_id<'a>(&self, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<String> {
        if self.id.is_empty() {
            return None;
        }
        let mut id = self.id.to_owned();
        for (name, value) in parameters {
            id = id.replace(&format!("{{{name}}}"), value);
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_found_by_method_and_path() {
        let route = find("PUT", "/prompts/{namespace}/{slug}").unwrap();
        assert_eq!(route.action, "prompt.update");
        assert_eq!(route.target_id([("namespace", "a"), ("slug", "b")]).as_deref(), Some("a/b"));
        assert_eq!(find("GET", "/prompts/{namespace}/{slug}"), None);
        assert_eq!(find("POST", "/keys").unwrap().target_id([]), None);
    }

    #[test]
    fn no_route_has_two_lines() {
        let mut routes: Vec<&str> = ROUTES.iter().map(|route| route.route).collect();
        routes.extend(UNRECORDED.iter().map(|(route, _)| *route));
        let count = routes.len();
        routes.sort_unstable();
        routes.dedup();
        assert_eq!(routes.len(), count);
    }
}
