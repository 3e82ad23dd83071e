//! Hostile texts of a given length that every reader meets.

fn repeated(unit: &str, length: usize) -> String {
    unit.repeat(length / unit.len())
}

/// Nested to a depth that parsers accept.
fn nested(inner: &str) -> String {
    let depth = 120;
    format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Objects in objects, each with a second member that sorts before the first one.
fn nested_objects(inner: &str) -> String {
    let depth = 120;
    format!("{}{inner}{}", "{\"b\":".repeat(depth), ",\"a\":1}".repeat(depth))
}

fn numbered(length: usize, unit: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(length + 64);
    for number in 0.. {
        if text.len() >= length {
            break;
        }
        text.push_str(&unit(number));
    }
    text
}

pub fn all(length: usize) -> Vec<(&'static str, Vec<u8>)> {
    let repeated = |unit: &str| repeated(unit, length);
    let half = length / 2;
    let texts = [
        ("brackets and commas", "[".repeat(half) + &",".repeat(half)),
        ("objects and commas", "{".repeat(half) + &",".repeat(half)),
        ("open brackets", repeated("[")),
        ("closing brackets", repeated("]")),
        ("pairs of brackets", repeated("[]")),
        ("empty arrays", format!("[{}1]", repeated("[],"))),
        ("empty objects", format!("[{}1]", repeated("{},"))),
        ("nested objects", repeated(r#"{"a":"#)),
        ("nested messages", repeated(r#"{"messages":[{"role":"user","content":"#)),
        ("nested content", repeated(r#"{"content":["#)),
        ("commas", repeated(",")),
        ("colons", repeated(":")),
        ("semicolons", repeated(";")),
        ("equals signs", repeated("=")),
        ("quotes", repeated("\"")),
        ("apostrophes", repeated("'")),
        ("spaces", repeated(" ")),
        ("zeros", repeated("\0")),
        ("dashes", repeated("-")),
        ("braces", repeated("{{")),
        ("open variables", repeated("{{a ")),
        ("slashes", repeated("/")),
        ("percent signs", repeated("%")),
        ("escaped slashes", repeated("%2f")),
        ("ampersands", repeated("a=b&")),
        ("letters", repeated("a")),
        ("words", repeated("a ")),
        ("almost a word", repeated("aaaaaaab ")),
        ("sentences", repeated("Ignore it. ")),
        ("lines", repeated("a\n")),
        ("headings", repeated("# a\n")),
        ("list items", repeated("- a\n")),
        ("code fences", repeated("```\n")),
        ("comments", repeated("<!--")),
        ("base64", repeated("QUJD")),
        ("padded base64", repeated("QQ==")),
        ("a long number", format!("[{}]", repeated("1"))),
        ("a long fraction", format!("[0.{}]", repeated("1"))),
        ("a long exponent", format!("[1e{}]", repeated("1"))),
        ("many zeros", format!("[1{}]", repeated("0"))),
        ("numbers", format!("[{}1]", repeated("1e9,"))),
        ("literals", format!("[{}1]", repeated("true,"))),
        ("empty strings", format!("[{}", repeated(r#""","#))),
        ("strings and spaces", format!("[{}", repeated("\"\"   "))),
        ("backslashes", format!("[\"{}", repeated("\\"))),
        ("escapes", format!("[\"{}", repeated("\\n"))),
        ("a closed text of escapes", format!("[\"{}\"]", repeated("\\n"))),
        ("code units", format!("[\"{}", repeated("\\u00e9"))),
        ("surrogates", format!("[\"{}", repeated("\\ud83d"))),
        ("surrogate pairs", format!("[\"{}", repeated("\\ud83d\\ude00"))),
        ("a long key of escapes", format!("{{\"{}\":1}}", repeated("\\u0061"))),
        ("a long key", format!("{{\"{}\":1}}", repeated("a"))),
        ("letters of other scripts", format!("[\"{}", repeated("éa "))),
        ("one long word", format!("[\"a {}", repeated("é"))),
        ("ideographs", format!("[\"a {}", repeated("日"))),
        ("invisible letters", repeated("\u{200b}a")),
        ("lines of one event", repeated("data:\n")),
        ("lines of one event with text", repeated("data: {\"a\":1}\n")),
        ("tiny events", repeated("data:\n\n")),
        ("tiny events of objects", repeated("data:{}\n\n")),
        ("named events", repeated("event: a\ndata: {}\n\n")),
        ("carriage returns", repeated("\r")),
        ("line ends", repeated("\r\n")),
        ("open events", repeated("data: {\"choices\":[{\"delta\":{\"content\":\"\n\n")),
        ("open lines", repeated("{\n")),
        ("lines of brackets", repeated("{[[[[\n")),
        ("empty lines", repeated("\n")),
        ("arrays around many texts", nested(&(repeated(r#"{"text":"abcdefg"},"#) + "1"))),
        ("arrays around a long text", nested(&format!("{{\"text\":\"{}\"}}", repeated("a")))),
        ("objects around many values", nested_objects(&format!("[{}1]", repeated("1,")))),
        ("objects around a long text", nested_objects(&format!("\"{}\"", repeated("a")))),
        ("many deep objects", format!("[{}1]", repeated(&(nested_objects("1") + ",")))),
        (
            "messages without text",
            format!("{{\"messages\":[{}", repeated(r#"{"role":"user","content":[]},"#)),
        ),
        (
            "parts without text",
            format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{}", repeated(r#"{"type":"x"},"#)),
        ),
        ("many names", format!("{{{}\"z\":1}}", numbered(length, |number| format!("\"{number:06}\":1,")))),
        (
            "names in falling order",
            format!("{{{}\"z\":1}}", numbered(length, |number| format!("\"{:06}\":1,", 999_999 - number))),
        ),
        ("cut off names", format!("{{{}", numbered(length, |number| format!("\"{number:06}\":1,")))),
        ("the same name", format!("{{{}", repeated(r#""messages":[],"#))),
        ("the same name, closed", format!("{{{}\"a\":1}}", repeated(r#""a":1,"#))),
        ("keys of headers", numbered(length, |number| format!("a{number}: b\n"))),
        ("parts of a form", repeated("--X\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n")),
        ("almost delimiters", repeated("--")),
        ("quoted cells", repeated("\"a\",")),
        ("open quotes", repeated("\"a\n")),
        ("cells", repeated("a,b\n")),
        ("not UTF-8", String::from_utf8_lossy(&vec![0xff; length / 3]).into_owned()),
    ];
    let mut shapes: Vec<_> = texts.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
    shapes.push(("invalid bytes", vec![0xff; length]));
    shapes.push(("empty messages", b"\x0a\x00".repeat(half)));
    shapes.push(("short frames", [0, 0, 0, 16].repeat(length / 4)));
    shapes
}
