//! The `model` field of a `multipart/form-data` body, as audio and image calls send it. Multipart parsers disagree on
//! unusual bodies, so the result is None for any body that is not plain. A key with model scopes rejects such a call.

use memchr::memmem;

/// No provider has a longer model name.
const MAX_MODEL_LENGTH: usize = 1_024;

/// The value of the form field `model`. None if it is missing or duplicated, or if parsers might disagree on it.
pub fn multipart_model(content_type: &str, body: &[u8]) -> Option<String> {
    let boundary = boundary(content_type)?;
    let delimiter = format!("--{boundary}");
    let mut starts = memmem::find_iter(body, &delimiter);
    if starts.next() != Some(0) {
        return None;
    }
    let mut model = None;
    let mut start = 0;
    loop {
        let rest = body.get(start + delimiter.len()..)?;
        if let Some(tail) = rest.strip_prefix(b"--") {
            return if tail.iter().all(|byte| b" \t\r\n".contains(byte)) { model } else { None };
        }
        let next = starts.next()?;
        // A delimiter inside a line is data for some parsers and the end of a part for others.
        let part = body.get(start + delimiter.len()..next)?.strip_prefix(b"\r\n")?.strip_suffix(b"\r\n")?;
        let head_end = memmem::find(part, b"\r\n\r\n")?;
        match is_model_field(std::str::from_utf8(&part[..head_end]).ok()?)? {
            true if model.is_some() || part.len() - head_end - 4 > MAX_MODEL_LENGTH => return None,
            true => model = Some(String::from_utf8(part[head_end + 4..].to_vec()).ok()?),
            false => {}
        }
        start = next;
    }
}

/// Whether the part with these headers is the field `model`. None if parsers might disagree.
fn is_model_field(head: &str) -> Option<bool> {
    let mut disposition = None;
    for line in head.split("\r\n") {
        if line.contains(['\r', '\n']) || line.starts_with([' ', '\t']) {
            return None;
        }
        let (name, value) = line.split_once(':')?;
        if name.trim().eq_ignore_ascii_case("content-disposition") && disposition.replace(value).is_some() {
            return None;
        }
    }
    let params = params(disposition?)?;
    let mut names = params.iter().filter(|(key, _)| key == "name");
    let name = &names.next()?.1;
    if names.next().is_some() || params.iter().any(|(key, _)| key == "name*") {
        return None;
    }
    if !name.eq_ignore_ascii_case("model") {
        return Some(false);
    }
    let is_file = params.iter().any(|(key, _)| key.starts_with("filename"));
    if is_file || name != "model" { None } else { Some(true) }
}

fn boundary(content_type: &str) -> Option<String> {
    let (kind, _) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut found = params(content_type)?.into_iter().filter(|(key, _)| key.starts_with("boundary"));
    let (key, boundary) = found.next()?;
    let plain = boundary.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    (key == "boundary" && found.next().is_none() && plain && (1..=70).contains(&boundary.len()))
        .then_some(boundary)
}

/// The parameters behind the first `;` of a header value, with names in lower case. None for unusual quoting.
fn params(value: &str) -> Option<Vec<(String, String)>> {
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest).trim();
    let mut params = Vec::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (text, after) = if let Some(quoted) = after.strip_prefix('"') {
            quoted.split_once('"')?
        } else {
            let end = after.find(';').unwrap_or(after.len());
            (after[..end].trim(), &after[end..])
        };
        if key.contains(['"', ';']) || text.contains(['"', '\\']) {
            return None;
        }
        params.push((key.trim().to_ascii_lowercase(), text.to_owned()));
        let after = after.trim_start();
        rest = match after.strip_prefix(';') {
            Some(more) => more.trim(),
            None if after.is_empty() => "",
            None => return None,
        };
    }
    Some(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TYPE: &str = "multipart/form-data; boundary=XyZ";

    fn form(parts: &[(&str, &str)]) -> Vec<u8> {
        let head = "--XyZ\r\nContent-Disposition: form-data; ";
        let parts =
            parts.iter().flat_map(|(disposition, content)| [head, disposition, "\r\n\r\n", content, "\r\n"]);
        parts.chain(["--XyZ--\r\n"]).collect::<String>().into_bytes()
    }

    #[test]
    fn finds_the_model_among_files_and_fields() {
        let body = form(&[
            ("name=\"file\"; filename=\"a;b.wav\"\r\nContent-Type: audio/wav", "\0\r\n\r\n--Xy"),
            ("name=\"model\"", "whisper-1"),
            ("name=language", "en"),
        ]);
        assert_eq!(multipart_model(TYPE, &body).as_deref(), Some("whisper-1"));
        assert_eq!(
            multipart_model("Multipart/Form-Data; charset=utf-8; boundary=\"XyZ\"", &body).as_deref(),
            Some("whisper-1")
        );
        assert_eq!(multipart_model(TYPE, &form(&[("name=\"prompt\"", "x")])), None);
        assert_eq!(multipart_model("application/json", &body), None);
    }

    #[test]
    fn anything_that_parsers_might_read_differently_is_none() {
        let twice = form(&[("name=\"model\"", "a"), ("name=model", "b")]);
        let case = form(&[("name=\"model\"", "a"), ("name=\"Model\"", "b")]);
        let starred = form(&[("name=\"model\"", "a"), ("name=\"x\"; name*=UTF-8''model", "b")]);
        let renamed = form(&[("name=\"model\"", "a"), ("name=\"x\"; name=\"model\"", "b")]);
        let escaped = form(&[("name=\"model\"", "a"), ("name=\"mo\\del\"", "b")]);
        let file = form(&[("name=\"model\"; filename=\"m\"", "a")]);
        let bare = form(&[
            ("name=\"model\"", "a"),
            ("name=\"x\"", "y\n--XyZ\nContent-Disposition: form-data; name=\"model\"\n\nb"),
        ]);
        let folded = form(&[("name=\"model\"", "a"), ("x=1;\r\n name=\"model\"", "b")]);
        let preamble = [b"x\r\n", &form(&[("name=\"model\"", "a")])[..]].concat();
        let mut open = form(&[("name=\"model\"", "a")]);
        open.truncate(open.len() - 4);
        for body in [twice, case, starred, renamed, escaped, file, bare, folded, preamble, open] {
            assert_eq!(multipart_model(TYPE, &body), None, "{}", String::from_utf8_lossy(&body));
        }
        let plain = form(&[("name=\"model\"", "a")]);
        assert_eq!(multipart_model("multipart/form-data; boundary=XyZ; boundary=Q", &plain), None);
    }

    proptest! {
        #[test]
        fn never_panics(body in "(--XyZ|\r\n|-|name=\"model\"|;|:|Content-Disposition|\"|x){0,20}", kind in ".*") {
            let _ = (multipart_model(TYPE, body.as_bytes()), multipart_model(&kind, body.as_bytes()));
        }
    }
}
