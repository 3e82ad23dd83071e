//! Names of the tools, prompts and resources of several servers in one list. A name can be taken apart only with the list
//! at hand: long names end in a hash.

use sha2::{Digest as _, Sha256};

/// The server that the gateway itself provides.
pub const RESERVED_SERVER: &str = "gateway";
/// What models of OpenAI accept as the name of a function.
const MAX_NAME: usize = 64;
const KEPT: usize = 55;
/// What the protocol recommends for names.
const MAX_OWN_NAME: usize = 128;

/// `{server}__{name}` in characters that models accept. A name that is too long, or that is not unique without it, ends
/// in a hash of the original.
pub fn namespaced(server: &str, name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .collect();
    let whole = format!("{server}__{plain}");
    if whole.len() <= MAX_NAME && !is_taken(&whole) { whole } else { hashed(server, name, &whole) }
}

fn hashed(server: &str, name: &str, whole: &str) -> String {
    let digest = Sha256::digest(format!("{server}__{name}"));
    let kept: String = whole.chars().take(KEPT).collect();
    format!("{kept}_{}", hex::encode(&digest[..4]))
}

/// The name of a prompt on the built-in server: `{namespace}__{slug}`. If that is too long or taken, it ends in a hash.
pub fn prompt_name(namespace: &str, slug: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let whole = format!("{namespace}__{slug}");
    if whole.len() <= MAX_OWN_NAME && !is_taken(&whole) {
        return whole;
    }
    let digest = Sha256::digest(format!("{namespace}/{slug}"));
    let kept: String = whole.chars().take(MAX_OWN_NAME - 9).collect();
    format!("{kept}_{}", hex::encode(&digest[..4]))
}

/// The URI of a server's resource in the list of all.
pub fn namespaced_uri(server: &str, uri: &str) -> String {
    for scheme in ["ui://", "skill://"] {
        if let Some(rest) = uri.strip_prefix(scheme) {
            return format!("{scheme}{server}/{rest}");
        }
    }
    format!("{server}+{uri}")
}

/// The server and the server's own URI.
pub fn split_uri(uri: &str) -> Option<(&str, String)> {
    for scheme in ["ui://", "skill://"] {
        if let Some(rest) = uri.strip_prefix(scheme) {
            let (server, path) = rest.split_once('/')?;
            return Some((server, format!("{scheme}{path}")));
        }
    }
    let (server, own) = uri.split_once('+')?;
    Some((server, own.to_owned()))
}

/// The server's own URI, if the URI is one of the server's.
pub fn unscoped_uri(server: &str, uri: &str) -> Option<String> {
    split_uri(uri).filter(|(of, _)| *of == server).map(|(_, own)| own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_plain_and_unique() {
        let free = |_: &str| false;
        assert_eq!(namespaced("x", "a__b", free), "x__a__b");
        assert_eq!(namespaced("git-hub", "issues.list", free), "git-hub__issues_list");
        let collided = namespaced("git-hub", "issues.list", |name| name == "git-hub__issues_list");
        assert!(collided.starts_with("git-hub__issues_list_") && collided.len() == 29, "{collided}");
        let long = namespaced("server", &"x".repeat(100), free);
        assert_eq!(long.len(), 64);
        assert_ne!(long, namespaced("server", &"x".repeat(101), free));
        assert_eq!(namespaced("s", &"é".repeat(200), free).len(), 64);
    }

    #[test]
    fn names_of_prompts_are_unique_too() {
        assert_eq!(prompt_name("support", "hello.v2", |_| false), "support__hello.v2");
        let (first, second) = (prompt_name("a", "b__c", |_| false), prompt_name("a__b", "c", |_| true));
        assert_eq!(first, "a__b__c");
        assert!(second.starts_with("a__b__c_") && second.len() == 16, "{second}");
        assert_eq!(prompt_name(&"n".repeat(64), &"s".repeat(64), |_| false).len(), 128);
    }

    #[test]
    fn uris_lead_back_to_their_server() {
        for (uri, scoped) in [
            ("file:///a+b", "s+file:///a+b"),
            ("ui://panel/x", "ui://s/panel/x"),
            ("skill://pdf/SKILL.md", "skill://s/pdf/SKILL.md"),
        ] {
            assert_eq!(namespaced_uri("s", uri), scoped);
            assert_eq!(split_uri(scoped), Some(("s", uri.to_owned())));
            assert_eq!(unscoped_uri("other", scoped), None);
        }
        assert_eq!(split_uri("file:///a"), None);
        assert_eq!(split_uri("ui://s"), None);
    }
}
