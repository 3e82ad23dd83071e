//! What a sentence or a command asks for: other rules, secrets, somebody else's ears, destruction. A sentence that forbids
//! the thing is no finding.

use super::passages::Passage;
use super::phrases::{
    ABOUT, ACCESS, COLLECTORS, DECEPTIONS, DESTROYERS, DOWNLOADERS, FALSE_NEGATIONS, HARMLESS, IGNORE,
    NEGATIONS, OVERRIDES, PRIVATE, RULES, SENDING, SHELLS, STORES, WHICH,
};
use super::{Finding, FindingKind};
use crate::skills::judge::outline::has_phrase;

pub fn scan(passage: &Passage, found: &mut Vec<Finding>) {
    let text = passage.text.as_str();
    let mut note = |kind: FindingKind| found.push(Finding::new(kind, text));
    if overrides(text) {
        note(FindingKind::Override);
    }
    if DECEPTIONS.iter().any(|phrase| asked_for(text, phrase)) {
        note(FindingKind::Deception);
    }
    if opens_store(text) {
        note(FindingKind::CredentialPath);
    }
    if sends_away(text) {
        note(FindingKind::Exfiltration);
    }
    if runs_from_network(text) {
        note(FindingKind::RemoteCode);
    }
    let padded = format!("{text} ");
    if DESTROYERS.iter().any(|command| asked_for(&padded, command)) {
        note(FindingKind::Destruction);
    }
    if persists(text) {
        note(FindingKind::Persistence);
    }
}

fn overrides(text: &str) -> bool {
    if OVERRIDES.iter().any(|phrase| asked_for(text, phrase)) {
        return true;
    }
    IGNORE.iter().any(|verb| {
        positions(text, verb).any(|at| {
            let behind: Vec<&str> = text[at + verb.len()..]
                .split(|c: char| !c.is_alphanumeric())
                .filter(|w| !w.is_empty())
                .take(7)
                .collect();
            let which = behind.iter().take(4).any(|word| WHICH.contains(word));
            let rules = behind.iter().any(|word| RULES.contains(word));
            which && rules && !is_negated(&text[..at]) && !is_cited(text, at)
        })
    })
}

fn opens_store(text: &str) -> bool {
    let mut bare = text.to_owned();
    for harmless in HARMLESS {
        bare = bare.replace(harmless, "");
    }
    STORES.iter().any(|store| asked_for(&bare, store)) && ACCESS.iter().any(|verb| has_phrase(&bare, verb))
}

fn sends_away(text: &str) -> bool {
    let text = without_auth_headers(text);
    let collector = COLLECTORS.iter().find(|host| text.contains(**host));
    let elsewhere = collector.is_some() || has_foreign_address(&text);
    let sends = SENDING.iter().any(|verb| positions(&text, verb).any(|at| !is_negated(&text[..at])));
    if !elsewhere || !sends {
        return image_with_data(&text);
    }
    let private =
        PRIVATE.iter().any(|what| has_phrase(&text, what)) || STORES.iter().any(|store| text.contains(store));
    collector.is_some() || private
}

/// An image whose address is filled in by the reader sends what it was filled with.
fn image_with_data(text: &str) -> bool {
    text.match_indices("![").any(|(at, _)| {
        let address =
            text[at..].split_once("](http").and_then(|(_, rest)| rest.split_once(')')).map_or("", |(a, _)| a);
        let filled = ["{", "<", "$", "["].iter().any(|mark| address.contains(mark));
        address.contains('?') && filled
    })
}

/// A token in a header goes to whom it is for.
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
        rest = inner.split_once(quote).map_or("", |(_, behind)| behind);
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

fn runs_from_network(text: &str) -> bool {
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
    let prose =
        fetched && payload && has_foreign_address(text) && run.iter().any(|phrase| asked_for(text, phrase));
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

/// The phrase stands there, and at least once neither forbidden nor cited.
fn asked_for(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| !is_negated(&text[..at]) && !is_cited(text, at))
}

/// Does the clause that ends here begin by forbidding?
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

/// In quotes, in a sentence about such phrases, and not to be followed.
fn is_cited(text: &str, at: usize) -> bool {
    let quoted = text[..at].chars().next_back().is_some_and(|c| "\"'“‘`«(".contains(c));
    let about = ABOUT.iter().any(|word| has_phrase(text, word));
    let mut orders =
        ["obey", "comply", "follow it", "follow them"].iter().flat_map(|word| positions(text, word));
    let followed = orders.any(|at| !is_negated(&text[..at]));
    quoted && about && !followed
}
