//! The codes of errors, each with its cause and its remedy. `docs/errors.md` is generated from this table, and a test
//! fails if the code returns one that is not in it.

/// An error code of the API or of the proxy.
#[derive(Clone, Copy, Debug)]
pub struct ErrorCode {
    pub code: &'static str,
    /// The statuses that it is returned with.
    pub statuses: &'static [u16],
    /// What has happened.
    pub cause: &'static str,
    /// What the caller, an admin or the operator can do about it.
    pub remedy: &'static str,
}

/// In alphabetical order.
pub const ERROR_CODES: &[ErrorCode] = &[
    ErrorCode {
        code: "auth_required",
        statuses: &[200],
        cause: "In log rows of [MCP](mcp.md) calls: the server wants a credential of the caller, and none is stored or it is refused. The result of the tool says so.",
        remedy: "Store the caller's credential with `PUT /api/v1/mcp-connections/{server}`.",
    },
    ErrorCode {
        code: "bad_request",
        statuses: &[400],
        cause: "A header, parameter or field is missing, malformed or out of range, or the body is not valid JSON. The message starts with its name. With `X-Gateway-Provider: auto` also: no provider, or more than one, serves the model.",
        remedy: "Correct what the message names. For `auto`, write `provider/model`, or define a [named model](models.md).",
    },
    ErrorCode {
        code: "budget_exceeded",
        statuses: &[403],
        cause: "A [budget](budgets.md) of the organization, team, application or key does not cover the maximum cost of the request. Nothing was sent. `budget_id` and `resets_at` name the budget and the end of its period.",
        remedy: "Wait for the next period, ask an admin for a higher limit, or send a smaller `max_tokens`. If the rest is only reserved for running requests, retry when they have ended.",
    },
    ErrorCode {
        code: "client_closed",
        statuses: &[499],
        cause: "The client closed the connection before the request or the response was complete. It appears in log rows.",
        remedy: "Raise the client's own timeout, or look for a proxy in between that ends connections early.",
    },
    ErrorCode {
        code: "conflict",
        statuses: &[409],
        cause: "Something with the same name exists already, or the resource was changed or deleted in the meantime.",
        remedy: "Choose another name, or read the resource again and repeat the change.",
    },
    ErrorCode {
        code: "duplicate_name",
        statuses: &[409],
        cause: "A skill or an export with this name exists already.",
        remedy: "Choose another name, or change the existing one.",
    },
    ErrorCode {
        code: "forbidden",
        statuses: &[403],
        cause: "Your role, or the plan of the organization, does not allow this. For proxied requests: the path belongs to objects that the provider keeps for the operator's account.",
        remedy: "Ask an admin or owner for the role, or the owner for the plan. To use objects of a provider, [store a credential of your own](proxy.md#the-operators-credential).",
    },
    ErrorCode {
        code: "internal",
        statuses: &[500],
        cause: "The gateway failed. The details are in its own log, not in the response.",
        remedy: "Report it with the value of the `x-request-id` header, which is in the server's log too.",
    },
    ErrorCode {
        code: "internal_frontmatter_synthesis",
        statuses: &[500],
        cause: "The frontmatter of a skill could not be written from its fields.",
        remedy: "Send the whole `SKILL.md` as `raw_source` instead of single fields, and report the `x-request-id`.",
    },
    ErrorCode {
        code: "invalid_body",
        statuses: &[400],
        cause: "The body of a request about skills or exports is not valid JSON, a field of a skill or of its rubric is invalid, or the skill's text is too long.",
        remedy: "Correct the field that the message names.",
    },
    ErrorCode {
        code: "invalid_config",
        statuses: &[400],
        cause: "A field of an [export](exports.md) is missing or invalid.",
        remedy: "Correct the field that the message names.",
    },
    ErrorCode {
        code: "invalid_frontmatter",
        statuses: &[400],
        cause: "The YAML between the two `---` lines of a `SKILL.md` is missing, is no mapping, or lacks `name` or `description`.",
        remedy: "Correct the frontmatter; [Skills](skills.md) shows one.",
    },
    ErrorCode {
        code: "invalid_id",
        statuses: &[400],
        cause: "An id in the path of a skill, verdict or export is malformed, or the path of a skill's file is not allowed.",
        remedy: "Use the id as the API returned it. [Skills](skills.md#other-files) has the rules for paths.",
    },
    ErrorCode {
        code: "invalid_log_id",
        statuses: &[400],
        cause: "The `log_id` of a list of verdicts is no whole number.",
        remedy: "Send the id of a log row, as in `X-Gateway-Log-Id`.",
    },
    ErrorCode {
        code: "invalid_request",
        statuses: &[400],
        cause: "An external verdict is not valid JSON, has neither a score nor a pass, or its axes, details or reference are larger than allowed.",
        remedy: "Correct the field that the message names.",
    },
    ErrorCode {
        code: "invalid_score",
        statuses: &[400],
        cause: "The score of an external verdict is not a number from 0 to 1.",
        remedy: "Scale the score to the range from 0 to 1.",
    },
    ErrorCode {
        code: "invalid_source",
        statuses: &[400],
        cause: "The source of an external verdict is malformed, or is a name that belongs to the gateway's own judges.",
        remedy: "Name your judge with lower-case letters, digits and hyphens, and not `internal`.",
    },
    ErrorCode {
        code: "invalid_subject",
        statuses: &[400],
        cause: "An external verdict does not say what it judges.",
        remedy: "Send `subject_type` `skill` with the UUID of a skill, or `log` with the id of a log row.",
    },
    ErrorCode {
        code: "limit_too_small",
        statuses: &[400],
        cause: "The call needs more tokens than a [limit](limits.md) has in all, so that waiting would never help. The message names both numbers.",
        remedy: "Set a smaller `max_tokens`, send less, or ask an admin to raise the limit.",
    },
    ErrorCode {
        code: "method_not_allowed",
        statuses: &[405],
        cause: "The path exists, but not with this method. `TRACE` and `CONNECT` are never forwarded.",
        remedy: "Use a method of the `Allow` header.",
    },
    ErrorCode {
        code: "missing_log_id",
        statuses: &[400],
        cause: "A list of verdicts was requested without the log row that they judge.",
        remedy: "Send `log_id` with the id of a log row.",
    },
    ErrorCode {
        code: "missing_required",
        statuses: &[400],
        cause: "A new skill has neither a `raw_source` nor both a name and a description.",
        remedy: "Send `raw_source`, or both `name` and `description`.",
    },
    ErrorCode {
        code: "not_found",
        statuses: &[404],
        cause: "There is no such resource in your organization, or no such endpoint. A resource of another organization gets the same answer.",
        remedy: "Check the id and the organization of your key. `GET /openapi.yaml` lists all endpoints. A [dialect](switching.md) of another gateway must be switched on with `GATEWAY_COMPAT`.",
    },
    ErrorCode {
        code: "not_publishable",
        statuses: &[409],
        cause: "The current version of a skill has not passed the [gate](skills.md): no verdict yet, a score below the rubric's, or a finding about safety.",
        remedy: "Read the evaluations of the skill, correct it, wait for the new verdict, and publish again.",
    },
    ErrorCode {
        code: "overloaded",
        statuses: &[503],
        cause: "Your organization's share of a resource is in use: queries, computation or memory for bodies. Others are not affected.",
        remedy: "Wait for the seconds in `Retry-After`, send less at once, and spread requests over time. The operator can raise the [limits](configuration.md).",
    },
    ErrorCode {
        code: "payload_too_large",
        statuses: &[413],
        cause: "The body, or a part of it, is larger than allowed. The message has the limit.",
        remedy: "Send less, or divide it. The operator can raise the limits of bodies ([configuration](configuration.md)).",
    },
    ErrorCode {
        code: "provider_error",
        statuses: &[502],
        cause: "The provider could not be reached, failed with a status of 500 or above, or returned something unreadable, and no other target was left. `provider`, `upstream_status` and `attempts` say what happened.",
        remedy: "Retry. Add a [fallback](routing.md) so that callers do not notice. If it is the first call, check base URL and credential of the provider with its test call.",
    },
    ErrorCode {
        code: "provider_timeout",
        statuses: &[504],
        cause: "The provider did not answer within the time limit of the call.",
        remedy: "Raise `X-Gateway-Timeout` (up to `GATEWAY_PROXY_TIMEOUT_MS`), stream the answer, or add a [fallback](routing.md).",
    },
    ErrorCode {
        code: "quota_exceeded",
        statuses: &[403],
        cause: "The organization, or the account, has as many of these as it may. `quota` and `limit` name it.",
        remedy: "Delete some, or ask the operator for a higher quota ([configuration](configuration.md)).",
    },
    ErrorCode {
        code: "rate_limited",
        statuses: &[429],
        cause: "More requests in this minute than the plan allows, more than a [limit](limits.md) of the organization allows (`limit` names it), or too many attempts to sign in.",
        remedy: "Wait for the seconds in `Retry-After`, or let the gateway wait with `X-Gateway-Wait`. `X-RateLimit-Remaining` and `RateLimit` say how much is left.",
    },
    ErrorCode {
        code: "request_timeout",
        statuses: &[408],
        cause: "The body of the request did not arrive in time.",
        remedy: "Check the connection of the client. Large uploads are limited by `GATEWAY_PROXY_TIMEOUT_MS`.",
    },
    ErrorCode {
        code: "scope_denied",
        statuses: &[403],
        cause: "The [scopes](access.md) of the key do not include this provider, model or action. A fallback target outside of the scopes counts too.",
        remedy: "Use a key with the scope, or ask an admin to add it to this key.",
    },
    ErrorCode {
        code: "signup_closed",
        statuses: &[403],
        cause: "The operator does not allow new accounts, or only with an invitation (`GATEWAY_SIGNUP`).",
        remedy: "Ask an admin of the organization for an invitation, and sign up with its `invite_token`.",
    },
    ErrorCode {
        code: "too_many_streams",
        statuses: &[429],
        cause: "The organization has as many live streams of logs or of the audit log open as one node allows.",
        remedy: "Close one, or read the list with `after_id` instead.",
    },
    ErrorCode {
        code: "unauthorized",
        statuses: &[401],
        cause: "No key or token, or one that is unknown, expired or revoked.",
        remedy: "Send the API key in `X-Gateway-Key`, or a session token in `Authorization: Bearer`. Clients that know only a base URL and a key use the base path `/sdk`. Sign in again if the session has expired.",
    },
    ErrorCode {
        code: "unavailable",
        statuses: &[503],
        cause: "The database cannot be reached. Proxied requests of known keys continue.",
        remedy: "Retry after the seconds in `Retry-After`. The operator looks at `/healthz` and the server's log ([operations](operations.md)).",
    },
    ErrorCode {
        code: "unpriced",
        statuses: &[403],
        cause: "The cost of the request cannot be known, and a [budget](budgets.md) with `unpriced: refuse` applies.",
        remedy: "Use a model that has a price, set a price for a [named model](models.md), or let an admin change `unpriced` of the budget.",
    },
    ErrorCode {
        code: "validation_error",
        statuses: &[422],
        cause: "The input is well-formed, but its content is not valid: a template with a syntax error, a bad row of an import, or a field that the provider's format cannot express ([translation](translation.md#dropped-and-rejected-fields)).",
        remedy: "Correct or remove the field that the message names. For translation, use a provider with your format.",
    },
];

/// True if the code is in the table.
pub fn is_documented(code: &str) -> bool {
    ERROR_CODES.binary_search_by(|known| known.code.cmp(code)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_complete() {
        assert!(ERROR_CODES.is_sorted_by(|one, next| one.code < next.code));
        for ErrorCode { code, statuses, cause, remedy } in ERROR_CODES {
            assert!(!statuses.is_empty() && cause.ends_with('.') && remedy.ends_with('.'), "{code}");
        }
    }
}
