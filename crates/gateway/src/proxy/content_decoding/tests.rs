//! Tests of the bounded decoder: every split of the input, truncated and corrupt input, decompression bombs.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;
use proptest::prelude::*;

use super::*;

const MAX: u64 = 64 << 20;
const CODINGS: [&str; 6] = ["gzip", "zlib", "raw", "br", "zstd", "gzip, br"];

fn encode(name: &str, text: &[u8]) -> Vec<u8> {
    match name {
        "gzip" | "x-gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "zlib" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "raw" => {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut out = Vec::new();
            let parameters = brotli::enc::BrotliEncoderParams { quality: 4, ..Default::default() };
            brotli::BrotliCompress(&mut &text[..], &mut out, &parameters).unwrap();
            out
        }
        "zstd" => zstd::encode_all(text, 3).unwrap(),
        stacked => stacked.split(", ").fold(text.to_vec(), |text, name| encode(name, &text)),
    }
}

fn codings(name: &str) -> ContentCodings {
    let declared = name.replace("zlib", "deflate").replace("raw", "deflate");
    ContentCodings::from_headers(&headers(&[&declared])).unwrap()
}

fn headers(values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(CONTENT_ENCODING, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// What was decoded, and how it ended.
fn decode_in(name: &str, encoded: &[u8], chunk: usize) -> (Vec<u8>, Result<(), DecodeError>) {
    let mut decoder = codings(name).decoder(MAX).unwrap();
    let mut decoded = Vec::new();
    let fed = encoded
        .chunks(chunk.max(1))
        .try_for_each(|chunk| decoder.feed(chunk, &mut |piece| decoded.extend_from_slice(piece)));
    (decoded, fed.and_then(|()| decoder.finish()))
}

/// The whole text, if it is complete and not larger.
fn decode_within(name: &str, encoded: &[u8], max_bytes: u64) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = codings(name).decoder(max_bytes).unwrap();
    let mut decoded = Vec::new();
    decoder.feed(encoded, &mut |piece| decoded.extend_from_slice(piece))?;
    decoder.finish().map(|()| decoded)
}

/// The parts of a body that arrives in one chunk, and how it ended.
fn parts(name: &str, encoded: &[u8], max_bytes: usize) -> (Vec<Vec<u8>>, Result<(), DecodeError>) {
    let mut decoder = codings(name).decoder(MAX).unwrap();
    decoder.begin(encoded.len());
    let (mut rest, mut parts) = (encoded, Vec::new());
    loop {
        let mut part = Vec::new();
        let decoded = decoder.decode_some(&mut rest, max_bytes, &mut |piece| part.extend_from_slice(piece));
        parts.push(part);
        match decoded {
            Ok(false) => {}
            Ok(true) => return (parts, decoder.finish()),
            Err(error) => return (parts, Err(error)),
        }
    }
}

#[test]
fn headers_declare_the_codings() {
    let read = |values: &[&str]| ContentCodings::from_headers(&headers(values));
    for identity in [&[][..], &[""], &["identity"], &["identity, ", "IDENTITY"]] {
        assert_eq!(read(identity), Some(ContentCodings::default()));
        assert!(read(identity).unwrap().decoder(MAX).is_none());
    }
    assert_eq!(read(&["X-GZip"]), read(&["gzip"]));
    assert_eq!(read(&["gzip", "br"]), read(&["gzip , identity,br"]));
    assert_ne!(read(&["br, gzip"]), read(&["gzip, br"]));
    for unknown in [&["compress"][..], &["gzip, gzip, gzip"], &["gzip;q=1"], &["dcb"]] {
        assert_eq!(read(unknown), None);
    }
}

#[test]
fn every_chunk_is_decoded_when_it_arrives() {
    let events = ["data: one\n\n", "data: two\n\n", "data: [DONE]\n\n"];
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    let mut brotli = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 22);
    for name in ["gzip", "zstd", "br"] {
        let mut decoder = codings(name).decoder(MAX).unwrap();
        let mut sent = 0;
        for event in events {
            let encoded = match name {
                "gzip" => {
                    gzip.write_all(event.as_bytes()).unwrap();
                    gzip.flush().unwrap();
                    gzip.get_ref().clone()
                }
                "zstd" => {
                    zstd.write_all(event.as_bytes()).unwrap();
                    zstd.flush().unwrap();
                    zstd.get_ref().clone()
                }
                _ => {
                    brotli.write_all(event.as_bytes()).unwrap();
                    brotli.flush().unwrap();
                    brotli.get_ref().clone()
                }
            };
            let mut decoded = Vec::new();
            decoder.feed(&encoded[sent..], &mut |piece| decoded.extend_from_slice(piece)).unwrap();
            sent = encoded.len();
            assert_eq!(decoded, event.as_bytes(), "{name}");
        }
        assert_eq!(decoder.finish(), Err(DecodeError::Truncated), "{name}");
    }
}

#[test]
fn decoding_a_bomb_stops() {
    let zeros = vec![0; 64 << 20];
    for name in CODINGS {
        let bomb = encode(name, &zeros);
        assert!(bomb.len() < 100_000);
        let mut decoder = codings(name).decoder(MAX * 2).unwrap();
        let mut decoded = 0;
        let fed = decoder.feed(&bomb, &mut |piece| decoded += piece.len());
        assert_eq!(fed, Err(DecodeError::TooLarge), "{name}");
        assert!(decoded as u64 <= FREE_BYTES.max(bomb.len() as u64 * MAX_RATIO), "{name} {decoded}");
        assert_eq!(decoder.feed(b"more", &mut |_| panic!("decodes on")), fed);
        assert_eq!(decoder.finish(), fed);
    }
}

#[test]
fn a_chunk_that_becomes_large_is_decoded_in_parts() {
    let zeros = vec![0; 900_000];
    for name in CODINGS {
        let encoded = encode(name, &zeros);
        let (found, ended) = parts(name, &encoded, PART_BYTES);
        assert_eq!(ended, Ok(()), "{name}");
        assert!(found.len() > 10 && found.iter().all(|part| part.len() < PART_BYTES + PIECE_BYTES), "{name}");
        assert!(found.concat() == zeros, "{name}");
    }
}

#[test]
fn input_that_becomes_nothing_is_read_in_parts() {
    let mut skipped = 0x184d_2a50_u32.to_le_bytes().to_vec();
    skipped.extend(50_000_u32.to_le_bytes());
    skipped.resize(50_008, 7);
    let skipped = [skipped.repeat(160), encode("zstd", b"")].concat();
    // Empty blocks of deflate data, in a body that is compressed once more.
    let head: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let blocks: Vec<u8> = [0, 0, 0, 0xff, 0xff].repeat(180_000);
    let end: [u8; 13] = [1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    let empty = encode("gzip", &[&head[..], &blocks[..], &end[..]].concat());
    assert!(skipped.len() > 7 << 20 && empty.len() < 10_000);
    // Each member needs a decoder.
    let members = encode("gzip", b"").repeat(3_000);
    let bodies = [("zstd", skipped, 100), ("gzip, gzip", empty, 10), ("gzip", members, 10)];
    for (name, encoded, at_least) in bodies {
        let mut decoder = codings(name).decoder(MAX).unwrap();
        decoder.begin(encoded.len());
        let mut rest = &encoded[..];
        assert_eq!(decoder.decode_some(&mut rest, PART_BYTES, &mut |_| ()), Ok(false), "{name}");
        assert!(encoded.len() - rest.len() <= PART_BYTES + PIECE_BYTES, "{name}");

        let (found, ended) = parts(name, &encoded, PART_BYTES);
        assert_eq!(ended, Ok(()), "{name}");
        assert!(found.len() > at_least && found.concat().is_empty(), "{name}: {} parts", found.len());
    }
}

#[test]
fn what_grows_by_much_is_not_ordinary() {
    let letters: Vec<u8> =
        (0..200_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()).collect();
    for (text, is_ordinary) in [(vec![0; 200_000], true), (vec![0; 900_000], false), (letters, true)] {
        for name in ["gzip", "br", "zstd"] {
            let encoded = encode(name, &text);
            let mut decoder = codings(name).decoder(MAX).unwrap();
            decoder.feed(&encoded, &mut |_| ()).unwrap();
            assert_eq!(decoder.is_ordinary(), is_ordinary, "{name}, {} of {}", encoded.len(), text.len());
        }
    }
}

#[test]
fn the_size_is_limited() {
    let text: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    for name in CODINGS {
        let encoded = Bytes::from(encode(name, &text));
        // Two codings count twice.
        let needed = 4 * text.len() as u64;
        assert_eq!(decode_within(name, &encoded, needed).unwrap(), text);
        assert_eq!(decode_within(name, &encoded, 100_000), Err(DecodeError::TooLarge), "{name}");
        let prefix = codings(name).decode_prefix(&encoded, 100_000);
        assert!(
            text.starts_with(&prefix)
                && prefix.len() <= 100_000
                && (name == "gzip, br" || !prefix.is_empty())
        );
    }
    let plain = Bytes::from_static(b"{}");
    assert_eq!(ContentCodings::default().decode_prefix(&plain, 0), plain);
}

#[test]
fn members_follow_each_other_and_padding_is_ignored() {
    let members = [encode("gzip", b"one "), encode("gzip", b"two"), vec![0; 5]].concat();
    let frames = [encode("zstd", b"one "), encode("zstd", b"two")].concat();
    for chunk in [1, 7, 1_000] {
        assert_eq!(decode_in("gzip", &members, chunk), (b"one two".to_vec(), Ok(())));
        assert_eq!(decode_in("zstd", &frames, chunk), (b"one two".to_vec(), Ok(())));
    }
    for name in CODINGS {
        assert_eq!(decode_in(name, b"", 1), (Vec::new(), Ok(())));
        assert_eq!(decode_in(name, &encode(name, b""), 1), (Vec::new(), Ok(())), "{name}");
    }
    // Not compressed at all, in spite of the header.
    for name in ["gzip", "zlib", "zstd", "gzip, br"] {
        assert!(decode_in(name, br#"{"usage":{}}"#, 4).1.is_err(), "{name}");
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2_000),
        (prop::collection::vec(any::<u8>(), 1..40), 1..3_000_usize)
            .prop_map(|(unit, times)| unit.repeat(times)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_do_not_matter(text in text(), name in prop::sample::select(&CODINGS[..]), sizes in prop::collection::vec(1..400_usize, 1..20)) {
        let encoded = encode(name, &text);
        let mut decoder = codings(name).decoder(MAX).unwrap();
        let (mut decoded, mut rest) = (Vec::new(), &encoded[..]);
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            decoder.feed(chunk, &mut |piece| decoded.extend_from_slice(piece)).unwrap();
            rest = after;
        }
        prop_assert_eq!(decoder.finish(), Ok(()));
        prop_assert!(decoded == text);
    }

    #[test]
    fn parts_do_not_matter(text in text(), name in prop::sample::select(&CODINGS[..]), max_bytes in 1..50_000_usize) {
        let (found, ended) = parts(name, &encode(name, &text), max_bytes);
        prop_assert_eq!(ended, Ok(()));
        prop_assert!(found.concat() == text);
    }

    #[test]
    fn truncated_bodies_give_their_start(text in text(), name in prop::sample::select(&CODINGS[..]), cut in any::<prop::sample::Index>(), chunk in 1..200_usize) {
        let mut encoded = encode(name, &text);
        encoded.truncate(cut.index(encoded.len()));
        let (decoded, end) = decode_in(name, &encoded, chunk);
        prop_assert!(text.starts_with(&decoded));
        prop_assert!(end.is_err() || encoded.is_empty());
    }

    #[test]
    fn corrupt_bodies_end_without_a_panic(text in text(), name in prop::sample::select(&CODINGS[..]), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), chunk in 1..200_usize) {
        let mut encoded = encode(name, &text);
        for (index, byte) in flips {
            let index = index.index(encoded.len());
            encoded[index] = byte;
        }
        let (decoded, _) = decode_in(name, &encoded, chunk);
        prop_assert!(decoded.len() as u64 <= FREE_BYTES.max(encoded.len() as u64 * MAX_RATIO));
    }

    #[test]
    fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..500), name in prop::sample::select(&CODINGS[..]), chunk in 1..50_usize) {
        decode_in(name, &bytes, chunk).0.len();
    }
}
