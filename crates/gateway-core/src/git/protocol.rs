//! The wire format of a fetch over smart HTTP, version 0: lines with their length in front, the advertisement of the
//! branch, the request of the client, and the pack in a side band. Clients that ask for version 2 accept version 0.

use std::collections::HashSet;

use super::{BRANCH, FetchPlan, Oid};

/// What the server can do. `no-done` is left out on purpose: the pack is sent only after the line `done`.
const CAPABILITIES: &str = "side-band-64k shallow no-progress filter allow-tip-sha1-in-want \
                            allow-reachable-sha1-in-want";
/// Data bytes in one line of the side band.
const BAND_BYTES: usize = 65_515;
/// Bounds on a request. A client sends a `have` for each of its commits until it gives up.
const MAX_WANTS: usize = 10_000;
const MAX_LINES: usize = 20_000;
const FLUSH: &[u8] = b"0000";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(pub String);

/// The request of `git-upload-pack`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchRequest {
    /// Parsed requests have each id once.
    pub wants: Vec<Oid>,
    pub haves: Vec<Oid>,
    /// The commits whose parents the client does not have.
    pub shallow: HashSet<Oid>,
    /// How many commits of history the client wants; none for all.
    pub depth: Option<u32>,
    /// The client fetches files later, one by one.
    pub without_blobs: bool,
    pub has_side_band: bool,
    /// The negotiation is over.
    pub is_done: bool,
}

impl FetchRequest {
    pub fn parse(mut body: &[u8]) -> Result<Self, ProtocolError> {
        let mut request = Self::default();
        let mut lines = 0;
        while !body.is_empty() {
            lines += 1;
            if lines > MAX_LINES {
                return Err(ProtocolError(format!("the request has more than {MAX_LINES} lines")));
            }
            let (line, rest) = next_line(body)?;
            body = rest;
            if let Some(line) = line {
                request.read_line(line)?;
            }
        }
        if request.wants.is_empty() {
            return Err(ProtocolError("the request has no want line".into()));
        }
        for ids in [&mut request.wants, &mut request.haves] {
            ids.sort_unstable();
            ids.dedup();
        }
        Ok(request)
    }

    fn read_line(&mut self, line: &str) -> Result<(), ProtocolError> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let oid = |text: &str| text.parse::<Oid>().map_err(|error| ProtocolError(format!("{word}: {error}")));
        match word {
            "want" => {
                let (id, capabilities) = rest.split_once(' ').unwrap_or((rest, ""));
                self.has_side_band |= capabilities.split(' ').any(|name| name == "side-band-64k");
                self.wants.push(oid(id)?);
                if self.wants.len() > MAX_WANTS {
                    return Err(ProtocolError(format!("the request wants more than {MAX_WANTS} objects")));
                }
            }
            "have" => self.haves.push(oid(rest)?),
            "shallow" => {
                self.shallow.insert(oid(rest)?);
            }
            "deepen" => {
                let depth = rest.parse::<u32>().ok().filter(|depth| *depth > 0);
                self.depth = Some(depth.ok_or_else(|| ProtocolError("deepen: expected a number".into()))?);
            }
            "filter" if rest == "blob:none" => self.without_blobs = true,
            "filter" => return Err(ProtocolError("the only filter is blob:none".into())),
            "done" => self.is_done = true,
            _ => return Err(ProtocolError("the request has an unknown line".into())),
        }
        Ok(())
    }
}

/// The first line and the rest. A line of length 0 ends a section.
fn next_line(body: &[u8]) -> Result<(Option<&str>, &[u8]), ProtocolError> {
    let malformed = || ProtocolError("the request is not made of git's length-prefixed lines".into());
    let length = body.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
    let length = length.and_then(|digits| usize::from_str_radix(digits, 16).ok()).ok_or_else(malformed)?;
    if length == 0 {
        return Ok((None, &body[4..]));
    }
    let line = body.get(4..length).and_then(|line| std::str::from_utf8(line).ok()).ok_or_else(malformed)?;
    Ok((Some(line.trim_end_matches('\n')), &body[length..]))
}

fn line(text: &str) -> Vec<u8> {
    format!("{:04x}{text}", text.len() + 4).into_bytes()
}

/// The answer to `info/refs?service=git-upload-pack`.
pub fn advertisement(head: Oid) -> Vec<u8> {
    let mut answer = line("# service=git-upload-pack\n");
    answer.extend_from_slice(FLUSH);
    let agent = concat!("agent=gateway/", env!("CARGO_PKG_VERSION"));
    answer.extend(line(&format!(
        "{head} HEAD\0{CAPABILITIES} symref=HEAD:refs/heads/{BRANCH} object-format=sha1 {agent}\n"
    )));
    answer.extend(line(&format!("{head} refs/heads/{BRANCH}\n")));
    answer.extend_from_slice(FLUSH);
    answer
}

/// The start of every answer: the new limits of the history, if the client asked for some, and that the negotiation has
/// found nothing to agree on. Objects that the client has are left out all the same.
pub fn negotiation(request: &FetchRequest, plan: &FetchPlan) -> Vec<u8> {
    let mut answer = Vec::new();
    if request.depth.is_some() {
        for oid in &plan.shallow {
            answer.extend(line(&format!("shallow {oid}\n")));
        }
        for oid in &plan.unshallow {
            answer.extend(line(&format!("unshallow {oid}\n")));
        }
        answer.extend_from_slice(FLUSH);
    }
    if request.is_done || !request.haves.is_empty() {
        answer.extend(line("NAK\n"));
    }
    answer
}

/// The answer to a request whose negotiation is over.
pub fn pack_answer(request: &FetchRequest, plan: &FetchPlan, pack: &[u8]) -> Vec<u8> {
    let mut answer = negotiation(request, plan);
    if !request.has_side_band {
        answer.extend_from_slice(pack);
        return answer;
    }
    answer.reserve(pack.len() + pack.len() / BAND_BYTES * 5 + 16);
    for part in pack.chunks(BAND_BYTES) {
        answer.extend_from_slice(format!("{:04x}\x01", part.len() + 5).as_bytes());
        answer.extend_from_slice(part);
    }
    answer.extend_from_slice(FLUSH);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "ce013625030ba8dba906f756967f9e9ca394464a";

    fn body(lines: &[&str]) -> Vec<u8> {
        lines.iter().flat_map(|text| if text.is_empty() { FLUSH.to_vec() } else { line(text) }).collect()
    }

    #[test]
    fn a_request_of_a_clone_is_read() {
        let first = format!("want {ID} no-done side-band-64k agent=git/2.47\n");
        let parsed = FetchRequest::parse(&body(&[&first, "deepen 1\n", "filter blob:none\n", ""])).unwrap();
        assert_eq!((parsed.wants.len(), parsed.depth, parsed.has_side_band), (1, Some(1), true));
        assert!(parsed.without_blobs && !parsed.is_done, "the capability no-done is not the line done");
        let have = format!("have {ID}\n");
        let parsed = FetchRequest::parse(&body(&[&first, "", &have, "", "done\n"])).unwrap();
        assert_eq!((parsed.haves.len(), parsed.is_done), (1, true));
    }

    #[test]
    fn repeated_lines_are_read_once() {
        let (want, have, shallow) =
            (format!("want {ID}\n"), format!("have {ID}\n"), format!("shallow {ID}\n"));
        let lines = [want.as_str(), shallow.as_str(), have.as_str()].repeat(1_000);
        let parsed = FetchRequest::parse(&body(&lines)).unwrap();
        assert_eq!((parsed.wants.len(), parsed.haves.len(), parsed.shallow.len()), (1, 1, 1));
    }

    #[test]
    fn malformed_requests_are_refused() {
        let want = format!("want {ID}\n");
        for bad in [
            b"".to_vec(),
            b"0000".to_vec(),
            b"zzzz".to_vec(),
            b"00".to_vec(),
            b"0003".to_vec(),
            b"ffffwant".to_vec(),
            b"0005\xff".to_vec(),
            body(&["want x\n"]),
            body(&["have\n"]),
            body(&[&want, "deepen 0\n"]),
            body(&[&want, "deepen -1\n"]),
            body(&[&want, "filter tree:0\n"]),
            body(&[&want, "push\n"]),
            body(&vec!["done\n"; MAX_LINES + 1]),
            body(&vec![want.as_str(); MAX_WANTS + 1]),
        ] {
            assert!(
                FetchRequest::parse(&bad).is_err(),
                "{}",
                String::from_utf8_lossy(&bad[..bad.len().min(40)])
            );
        }
    }

    #[test]
    fn the_pack_is_cut_into_lines_of_the_side_band() {
        let request = FetchRequest { has_side_band: true, is_done: true, ..FetchRequest::default() };
        let answer = pack_answer(&request, &FetchPlan::default(), &vec![7; BAND_BYTES + 1]);
        assert!(answer.starts_with(b"0008NAK\nfff0\x01"));
        assert!(answer.ends_with(b"0006\x01\x070000"));
        let plain = FetchRequest { is_done: true, ..FetchRequest::default() };
        assert_eq!(pack_answer(&plain, &FetchPlan::default(), b"P"), b"0008NAK\nP");
    }
}
