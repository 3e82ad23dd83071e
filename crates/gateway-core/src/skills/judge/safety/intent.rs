//! Finds sentences and commands that ask for something unsafe: overriding rules, reading credentials, exfiltration,
//! destruction. A sentence that forbids the action is not a finding.

use super::passages::Passage;
use super::phrases::{
    ABOUT, ACCESS, COLLECTORS, CREDENTIAL_STORES, DECEPTIONS, DESTROYERS, DOWNLOADERS, FALSE_NEGATIONS,
    HARMLESS, IGNORE, NEGATIONS, OVERRIDES, PRIVATE_DATA, RULES, SENDING, SHELLS, WHICH,
};
use super::{Finding, FindingKind};
use crate::skills::judge::outline::has_phrase;

pub fn scan(passage: &Passage, found: &mut Vec<Finding>) {
    let text = passage.text.as_str();
    let mut report = |kind: FindingKind| found.push(Finding::new(kind, text));
    if overrides_rules(text) {
        report(FindingKind::Override);
    }
    if DECEPTIONS.iter().any(|phrase| is_requested(text, phrase)) {
        report(FindingKind::Deception);
    }
    if reads_credentials(text) {
        report(FindingKind::CredentialPath);
    }
    if exfiltrates(text) {
        report(FindingKind::Exfiltration);
    }
    if runs_remote_code(text) {
        report(FindingKind::RemoteCode);
    }
    let padded = format!("{text} ");
    if DESTROYERS.iter().any(|command| is_requested(&padded, command)) {
        report(FindingKind::Destruction);
    }
    if persists(text) {
        report(FindingKind::Persistence);
    }
}

fn overrides_rules(text: &str) -> bool {
    if OVERRIDES.iter().any(|phrase| is_requested(text, phrase)) {
        return true;
    }
    IGNORE.iter().any(|verb| {
        positions(text, verb).any(|at| {
            let following: Vec<&str> = text[at + verb.len()..]
                .split(|c: char| !c.is_alphanumeric())
                .filter(|w| !w.is_empty())
                .take(7)
                .collect();
            let which = following.iter().take(4).any(|word| WHICH.contains(word));
            let rules = following.iter().any(|word| RULES.contains(word));
            which && rules && !is_negated(&text[..at]) && !is_cited(text, at)
        })
    })
}

fn reads_credentials(text: &str) -> bool {
    let mut bare = text.to_owned();
    for harmless in HARMLESS {
        bare = bare.replace(harmless, "");
    }
    CREDENTIAL_STORES.iter().any(|store| is_requested(&bare, store))
        && ACCESS.iter().any(|verb| has_phrase(&bare, verb))
}

fn exfiltrates(text: &str) -> bool {
    let text = without_auth_headers(text);
    let collector = COLLECTORS.iter().find(|host| text.contains(**host));
    let elsewhere = collector.is_some() || has_foreign_address(&text);
    let sends = SENDING.iter().any(|verb| positions(&text, verb).any(|at| !is_negated(&text[..at])));
    if !elsewhere || !sends {
        return image_with_data(&text);
    }
    let private = PRIVATE_DATA.iter().any(|what| has_phrase(&text, what))
        || CREDENTIAL_STORES.iter().any(|store| text.contains(store));
    collector.is_some() || private
}

/// Whether an image URL has a placeholder in its query. Rendering the image would send the inserted data.
fn image_with_data(text: &str) -> bool {
    text.match_indices("![").any(|(at, _)| {
        let address =
            text[at..].split_once("](http").and_then(|(_, rest)| rest.split_once(')')).map_or("", |(a, _)| a);
        let filled = ["{", "<", "$", "["].iter().any(|mark| address.contains(mark));
        address.contains('?') && filled
    })
}

/// Removes quoted header arguments: a token in a request header is normal use.
fn without_auth_headers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, mark)) = ["-h \"", "-h '", "--header \"", "--header '"]
        .iter()
        .filter_map(|m| rest.find(m).map(|at| (at, *m)))
        .min()
    {
        out.push_str(&rest[..at]);
        let quote = if mark.ends_with('"') { '"' } else { '\'' };
        let inner = &rest[at + mark.len()..];
        rest = inner.split_once(quote).map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

fn has_foreign_address(text: &str) -> bool {
    ["http://", "https://", "ftp://", "/dev/tcp/"].iter().any(|scheme| {
        text.match_indices(scheme).any(|(at, found)| {
            let host = &text[at + found.len()..];
            !["localhost", "127.0.0.1", "[::1]", "$", "{"].iter().any(|own| host.starts_with(own))
        })
    }) || text.split_whitespace().any(|word| {
        word.split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && host.trim_end_matches('.').contains('.'))
    })
}

fn runs_remote_code(text: &str) -> bool {
    let downloads = DOWNLOADERS.iter().find(|tool| has_phrase(text, tool));
    if let Some(tool) = downloads
        && !is_negated(&text[..text.find(tool).unwrap_or_default()])
    {
        let piped = text.split('|').skip(1).map(str::trim_start).any(|part| {
            SHELLS.iter().any(|shell| {
                part.strip_prefix(shell).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with([' ', '`', '"', '\'', ';', ')', '.'])
                })
            })
        });
        let inner = ["<(curl", "<(wget", "$(curl", "$(wget", "`curl"].iter().any(|form| text.contains(form));
        let called = ["bash", "sh", "eval", "source", "exec"].iter().any(|word| has_phrase(text, word));
        if piped || inner && called || has_phrase(text, "iex") {
            return true;
        }
    }
    let decoded =
        text.contains("base64") && ["-d", "--decode", "-D"].iter().any(|flag| has_phrase(text, flag));
    let then_run = text.split('|').skip(1).any(|part| {
        SHELLS.iter().any(|shell| part.trim() == *shell || part.trim().starts_with(&format!("{shell} ")))
    });
    let evaluated =
        text.contains("eval(atob(") || text.contains("exec(base64") || text.contains("eval(base64");
    let fetched = ["download", "fetch", "get"].iter().any(|verb| has_phrase(text, verb));
    let run = [
        "run it",
        "execute it",
        "execute the",
        "run the script",
        "run that script",
        "run the binary",
        "run the installer",
    ];
    let payload = [".sh", ".exe", ".ps1", "script", "binary", "installer", ".zip", ".dmg"]
        .iter()
        .any(|what| has_phrase(text, what));
    let prose = fetched
        && payload
        && has_foreign_address(text)
        && run.iter().any(|phrase| is_requested(text, phrase));
    decoded && then_run || evaluated || prose
}

fn persists(text: &str) -> bool {
    let writes = ["append", "add", "write", ">>", "echo", "insert", "save", "put", "install"]
        .iter()
        .any(|verb| has_phrase(text, verb));
    if !writes || is_negated(text.split(">>").next().unwrap_or_default()) {
        return false;
    }
    let keys = text.contains("authorized_keys");
    let schedule = text.contains("crontab") && (text.contains('|') || text.contains("http"));
    let profile = [".bashrc", ".zshrc", ".profile", ".bash_profile"].iter().any(|file| text.contains(file));
    let trap = ["curl", "wget", "base64", "nc ", "alias sudo", "alias ssh", "python -c"]
        .iter()
        .any(|what| text.contains(what));
    let memory =
        ["your memory", "claude.md", "agents.md", "your instructions", "system prompt", "settings.json"]
            .iter()
            .any(|m| text.contains(m));
    let forever = [
        "future session",
        "future conversation",
        "every session",
        "every conversation",
        "from now on",
        "permanently",
    ];
    keys || schedule || profile && trap || memory && forever.iter().any(|phrase| text.contains(phrase))
}

fn positions<'a>(text: &'a str, phrase: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(phrase).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        before.is_none_or(|c| !c.is_alphanumeric()) && after.is_none_or(|c| !c.is_alphanumeric())
    })
}

/// Whether the phrase occurs at least once without being forbidden or cited.
fn is_requested(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| !is_negated(&text[..at]) && !is_cited(text, at))
}

/// Whether the last clause of `before` contains a negation.
fn is_negated(before: &str) -> bool {
    let mut clause = before;
    for end in [";", ":", " but ", " then ", " instead ", " except ", "&&", "||"] {
        clause = clause.rsplit(end).next().unwrap_or(clause);
    }
    let mut clause = clause.to_owned();
    for phrase in FALSE_NEGATIONS {
        clause = clause.replace(phrase, "");
    }
    NEGATIONS.iter().any(|word| has_phrase(&clause, word))
}

/// Whether the phrase is quoted in a sentence about such phrases, without an order to follow it.
fn is_cited(text: &str, at: usize) -> bool {
    let quoted = text[..at].chars().next_back().is_some_and(|c| "\"'“‘`«(".contains(c));
    let about = ABOUT.iter().any(|word| has_phrase(text, word));
    let mut orders =
        ["obey", "comply", "follow it", "follow them"].iter().flat_map(|word| positions(text, word));
    let followed = orders.any(|at| !is_negated(&text[..at]));
    quoted && about && !followed
}
