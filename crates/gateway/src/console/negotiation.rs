//! Content negotiation: `Accept-Encoding` and `If-None-Match`.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};

/// The content encoding of a file, ordered by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    Brotli,
    Gzip,
    Identity,
}

impl Encoding {
    /// Returns the name without its compression suffix, and the encoding.
    pub fn of_file(name: &str) -> (&str, Self) {
        match (name.strip_suffix(".br"), name.strip_suffix(".gz")) {
            (Some(name), _) => (name, Self::Brotli),
            (_, Some(name)) => (name, Self::Gzip),
            _ => (name, Self::Identity),
        }
    }

    /// The value of the `Content-Encoding` header.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }
}

/// Returns the variant with the highest weight, the smallest among equals. A client that accepts none gets the
/// uncompressed one.
pub fn preferred<'a>(
    headers: &HeaderMap,
    variants: &'a [(Encoding, Bytes)],
) -> Option<&'a (Encoding, Bytes)> {
    let encodings: Vec<Encoding> = variants.iter().map(|variant| variant.0).collect();
    let chosen = preferred_encoding(headers, &encodings)?;
    variants.iter().find(|variant| variant.0 == chosen)
}

/// The same for encodings alone.
pub fn preferred_encoding(headers: &HeaderMap, offered: &[Encoding]) -> Option<Encoding> {
    let accepted: Vec<(&str, u16)> = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(parse_weights)
        .collect();
    let weight = |encoding: Encoding| {
        let of = |wanted: &str| accepted.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        match encoding.name() {
            Some(name) => of(name).or_else(|| of("*")).map_or(0, |(_, weight)| *weight),
            // Allowed unless it is rejected explicitly, with the lowest weight.
            None => of("identity").or_else(|| of("*").filter(|(_, weight)| *weight == 0)).map_or(1, |w| w.1),
        }
    };
    let allowed = |encoding: Encoding| encoding == Encoding::Identity || weight(encoding) > 0;
    // `max_by_key` returns the last of equals.
    offered.iter().copied().rev().filter(|one| allowed(*one)).max_by_key(|one| weight(*one))
}

/// Returns names and weights in thousandths. An invalid weight counts as 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is between 0 and 1000"
)]
fn parse_weights(value: &str) -> impl Iterator<Item = (&str, u16)> {
    value.split(',').map(|item| {
        let (name, parameters) = item.split_once(';').unwrap_or((item, "q=1"));
        let number = parameters.trim().strip_prefix("q=").and_then(|number| number.parse::<f32>().ok());
        let weight = number.filter(|number| (0.0..=1.0).contains(number)).unwrap_or_default();
        (name.trim(), (weight * 1000.0).round() as u16)
    })
}

/// True if `If-None-Match` contains this entity tag.
pub fn matches_etag(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = known.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    tags.any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn chosen(accept: &[&'static str], encodings: &[Encoding]) -> Encoding {
        let headers: HeaderMap =
            accept.iter().map(|value| (ACCEPT_ENCODING, HeaderValue::from_static(value))).collect();
        let variants: Vec<_> = encodings.iter().map(|encoding| (*encoding, Bytes::new())).collect();
        preferred(&headers, &variants).unwrap().0
    }

    #[test]
    fn the_variant_with_the_highest_weight_is_chosen() {
        use Encoding::{Brotli, Gzip, Identity};
        let all = [Brotli, Gzip, Identity];
        for (accept, expected) in [
            (&[][..], Identity),
            (&[""], Identity),
            (&["gzip, deflate, br, zstd"], Brotli),
            (&["gzip"], Gzip),
            (&["gzip", "br"], Brotli),
            (&["GZIP;q=1, br;q=0.5"], Gzip),
            (&["br;q=0, gzip;q=0.1"], Gzip),
            (&["*"], Brotli),
            (&["br;q=0, *;q=0.2"], Gzip),
            (&["identity;q=1, br;q=0.5"], Identity),
            (&["br;q=0"], Identity),
            (&["br;q=nonsense"], Identity),
            (&["*;q=0"], Identity),
            (&["zstd"], Identity),
        ] {
            assert_eq!(chosen(accept, &all), expected, "{accept:?}");
        }
        assert_eq!(chosen(&["br"], &[Identity]), Identity);
        assert_eq!(chosen(&["br, gzip"], &[Gzip, Identity]), Gzip);
    }
}
