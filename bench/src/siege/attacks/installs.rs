//! Attacks on what agents install: clones and fetches by git, archives, and a tree that changes all the time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::Attacker;

const SKILLS: usize = 40;
const FILES: usize = 16;
const FILE_BYTES: usize = 256 << 10;
const HAVES: usize = 9_000;
const PAUSE: Duration = Duration::from_millis(20);
const BASE: &str = "/api/v1/skills/install";

/// Skills that pass the gate, with files beside them, and changes of these.
pub(super) async fn trees(attacker: Arc<Attacker>, _: usize) {
    let mut client = attacker.client();
    let mut made = Vec::new();
    for number in 0..SKILLS {
        let skill = json!({"raw_source": skill_file(number)});
        if let Some(skill) = attacker.api("install-trees", &mut client, ("POST", "/skills"), &skill).await {
            made.extend(skill["id"].as_str().map(str::to_owned));
        }
    }
    for round in 0_usize.. {
        for id in &made {
            let path = format!("/skills/{id}/files/references/file{}.md", round % FILES);
            let body = format!("round {round}\n").repeat(FILE_BYTES / 10);
            let request = super::super::victim::api_request("PUT", &path, &attacker.key, &body);
            attacker.send("install-trees", &mut client, &request).await;
            let index = attacker.plain("GET", &format!("{BASE}/marketplace.json"), "", b"");
            attacker.send("install-trees", &mut client, &index).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Archives and indexes.
pub(super) async fn archives(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let names = ["zip", "tar.gz", "plugin.zip"];
    let mut paths: Vec<String> = (0..SKILLS)
        .flat_map(|number| names.iter().map(move |kind| format!("{BASE}/{}.{kind}", skill_name(number))))
        .collect();
    paths.push(format!("{BASE}/.well-known/agent-skills/index.json"));
    paths.push(format!("{BASE}/.well-known/skills/index.json"));
    paths.push(format!("{BASE}/all-skills.plugin.zip"));
    loop {
        for path in paths.iter().cycle().skip(20 * task).take(paths.len()) {
            attacker.send("install-archives", &mut client, &attacker.plain("GET", path, "", b"")).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Clones of everything, and fetches that claim to have very many objects.
pub(super) async fn git(attacker: Arc<Attacker>, task: usize) {
    let mut client = attacker.client();
    let refs = format!("{BASE}/skills.git/info/refs?service=git-upload-pack");
    let fetch = format!("{BASE}/skills.git/git-upload-pack");
    let upload = "Content-Type: application/x-git-upload-pack-request\r\n";
    loop {
        let listed = attacker.plain("GET", &refs, "", b"");
        let listed = attacker.send("install-git", &mut client, &listed).await;
        if let Some(head) = listed.and_then(|reply| head_of(&String::from_utf8_lossy(&reply.body))) {
            let haves = if task.is_multiple_of(2) { 0 } else { HAVES };
            let request = attacker.plain("POST", &fetch, upload, fetch_request(&head, haves).as_bytes());
            attacker.send("install-git", &mut client, &request).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn fetch_request(want: &str, haves: usize) -> String {
    let mut request = pkt_line(&format!("want {want} side-band-64k\n"));
    request.push_str("0000");
    for number in 0..haves {
        request.push_str(&pkt_line(&format!("have {number:040x}\n")));
    }
    request.push_str(&pkt_line("done\n"));
    request
}

/// A line of git's protocol: its length in hexadecimal digits, these included.
fn pkt_line(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

/// The object id of the branch, in the list of branches.
fn head_of(listed: &str) -> Option<String> {
    let (before, _) = listed.split_once(" HEAD\0")?;
    let id = before.get(before.len().checked_sub(40)?..)?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| id.to_owned())
}

fn skill_name(number: usize) -> String {
    format!("release-notes-{number}")
}

/// A text that the built-in judge lets pass.
fn skill_file(number: usize) -> String {
    format!(
        "---\nname: {}\nheadline: One line per change that users notice\ndescription: Writes entry {number} for \
         CHANGELOG.md from a merged pull request. Use when a pull request was merged or the user asks for entry \
         {number}.\n---\n\n# Write changelog entry {number}\n\n1. Read the title of pull request {number}: `gh pr view \
         {number} --json title,body,labels`.\n2. Choose the heading: `Added`, `Changed`, `Fixed` or `Removed`.\n3. \
         Write one line in the past tense, at most 100 characters, with the number in brackets.\n\n## Example\n\n    \
         ### Fixed\n    - Uploads resume after a lost connection (#{number})\n\nCheck the file: `grep -c '^## \
         Unreleased' CHANGELOG.md` must print 1.\nDo not write an entry for changes of tests; say so instead.\n",
        skill_name(number)
    )
}

impl Attacker {
    /// A request without a format of its own.
    fn plain(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Gateway-Key: {}\r\n{headers}Content-Length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_git_have_its_framing() {
        assert_eq!(pkt_line("done\n"), "0009done\n");
        let id = "0123456789012345678901234567890123456789";
        let have = format!("0032have {:040x}\n", 0);
        assert_eq!(fetch_request(id, 1), format!("0040want {id} side-band-64k\n0000{have}0009done\n"));
        let listed = format!("001e# service=git-upload-pack\n00000100{id} HEAD\0side-band-64k\n");
        assert_eq!(head_of(&listed).as_deref(), Some(id));
        assert_eq!((head_of("0000"), head_of(" HEAD\0")), (None, None));
    }
}
