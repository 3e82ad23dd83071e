//! What the service opens to callers, logged at start, so that the operator sees what a stranger could use.

use crate::config::{Config, OperatorCredentials, Signup};
use crate::services::Services;

/// Logs the openings in one line, and a warning for each that a stranger on the network could use.
pub fn log(services: &Services) {
    let config = &services.config;
    let egress_private = if services.egress.allows_private() { "allow" } else { "deny" };
    let (signup, operator_credentials) = (config.signup.as_str(), shared_credentials(config));
    let is_local = config.listen.ip().is_loopback();
    let listener = match (is_local, config.tls.is_some()) {
        (true, _) => "loopback",
        (false, true) => "network with TLS",
        (false, false) => "network without TLS",
    };
    tracing::info!(listener, signup, egress_private, operator_credentials, "open to callers");
    for warning in warnings(config, services.egress.allows_private()) {
        tracing::warn!("{warning}");
    }
}

/// The operator's credentials and who may use them.
fn shared_credentials(config: &Config) -> String {
    let names = config.credential_names();
    match &config.operator_credentials {
        _ if names.is_empty() => "none".into(),
        OperatorCredentials::Off => "off".into(),
        OperatorCredentials::All => format!("{} for all organizations", names.join(", ")),
        OperatorCredentials::Listed { .. } => format!("{} for listed organizations", names.join(", ")),
    }
}

/// The openings that matter when others can connect, each with its remedy behind the last semicolon.
pub fn warnings(config: &Config, allows_private: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if !config.is_exposed() {
        return warnings;
    }
    let is_local = config.listen.ip().is_loopback();
    let is_open = config.signup == Signup::Open;
    if !is_local && config.tls.is_none() {
        warnings.push(format!(
            "GATEWAY_LISTEN {} is not loopback: keys and tokens travel over plain HTTP; set GATEWAY_TLS_CERT and GATEWAY_TLS_KEY, or put a \
             proxy with TLS in front",
            config.listen
        ));
    }
    if is_open && !is_local {
        warnings.push(
            "GATEWAY_SIGNUP is open: everyone who can connect may create an account; set it to invite or closed"
                .into(),
        );
    }
    if is_open && config.operator_credentials == OperatorCredentials::All {
        let names = config.credential_names();
        if !names.is_empty() {
            warnings.push(format!(
                "GATEWAY_OPERATOR_CREDENTIALS is all and signup is open: everyone may use the operator's credentials for \
                 {}; set it to off or to a list of organizations",
                names.join(", ")
            ));
        }
    }
    if allows_private {
        warnings.push(
            "GATEWAY_EGRESS_PRIVATE is allow: URLs of tenants can reach private addresses; set it to deny"
                .into(),
        );
    }
    warnings
}
